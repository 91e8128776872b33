/// Messages as sends and receives of a c10d process group.
///
/// A Work of Gloo's is never complete by itself: its isCompleted() stays false until somebody has
/// been in its wait(). So each peer has a thread that waits for what is under way with it
/// (`ls-gloo-PEER`), and progress() only looks.
///
/// A peer that dies closes its connections, and so does one that leaves because another died. Which
/// it was, the region knows a moment later. An error of c10d is therefore held back for some
/// thousand naps: by then the group's watchdog has named the cause, or the error is it.
#pragma once

#include <torch/version.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/net/transport.h"
#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#endif

namespace lockstep {

#if TORCH_VERSION_MAJOR >= 2
using C10dGroup = c10d::Backend;
#else
using C10dGroup = c10d::ProcessGroup;
#endif

class C10dTransport final : public net::Transport {
 public:
  C10dTransport(std::string engine, c10::intrusive_ptr<C10dGroup> group);
  ~C10dTransport() override;

  void send(int peer, const void* data, int64_t bytes) override;
  void receive(int peer, void* data, int64_t bytes) override;
  /// Throws std::runtime_error: a transfer failed long ago, and nothing else has explained it.
  bool progress() override;
  bool awaits(int peer) const override;
  void nap() override;
  void abandon() override;

 private:
  enum class Direction { send, receive };
  struct Transfer {
    int peer;
    Direction direction;
    int64_t bytes;
    c10::intrusive_ptr<c10d::Work> work;  // null: it could not be started
  };
  struct Failure {
    int peer;
    std::string what;
    int naps = 0;  // since then
  };
  class Waiter;

  void start(int peer, Direction direction, void* data, int64_t bytes);
  /// False: still under way, or failed.
  bool is_complete(const Transfer& transfer);
  void note_failure(int peer, const std::string& what);
  Waiter& waiter_of(int peer);

  const std::string engine_;
  c10::intrusive_ptr<C10dGroup> group_;
  std::vector<Transfer> open_;
  std::optional<Failure> failure_;                // the first
  std::vector<std::unique_ptr<Waiter>> waiters_;  // by peer; null until first needed
};

}  // namespace lockstep
