#include "lockstep/comm/detail/call_queue.h"

namespace lockstep {

Work::Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

void Work::wait() {
  if (!state_->done()) {
    // A queue that is gone has completed all its calls.
    if (const auto queue = state_->queue.lock()) queue->wait(*state_);
  }
  if (state_->error) std::rethrow_exception(state_->error);
}

bool Work::done() const { return state_->done(); }

double Work::exposed_seconds() const {
  return static_cast<double>(state_->exposed_ns.load(std::memory_order_relaxed)) * 1e-9;
}

}  // namespace lockstep
