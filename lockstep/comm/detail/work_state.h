/// What a Work and the queue that runs it share.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>

#include "lockstep/comm/process_group.h"

namespace lockstep {

namespace detail {
class CallQueue;
}

struct Work::State {
  /// The collective, with the tensors it needs. Touched by the thread that runs it, which drops it
  /// before it says `complete`: a caller that returns from wait() finds the tensors let go.
  std::function<void()> call;
  std::exception_ptr error;  // written before `complete`
  std::atomic<uint32_t> complete{0};
  std::atomic<int64_t> exposed_ns{0};

  std::weak_ptr<detail::CallQueue> queue;  // alive as long as the group; needed only until complete

  bool done() const { return complete.load(std::memory_order_acquire) != 0; }

  /// Spins briefly, since most collectives last microseconds, then sleeps.
  void block_until_done();
};

}  // namespace lockstep
