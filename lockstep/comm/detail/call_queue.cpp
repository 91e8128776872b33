#include "lockstep/comm/detail/call_queue.h"

#include <pthread.h>

#include <chrono>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// About the price of sleeping and being woken: spinning longer takes cycles from other ranks.
constexpr auto kSpin = std::chrono::microseconds(20);

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

int64_t ns_since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}

}  // namespace

void Work::State::block_until_done() {
  const auto give_up = Clock::now() + kSpin;
  while (!done()) {
    if (Clock::now() >= give_up) {
      complete.wait(0, std::memory_order_acquire);
      return;
    }
    for (int i = 0; i < 16; ++i) relax();
  }
}

namespace detail {

CallQueue::CallQueue(const std::string& name)
    : thread_name_(("ls-comm-" + name).substr(0, 15)) {}  // the kernel keeps 15 characters

CallQueue::~CallQueue() { close(); }

std::shared_ptr<Work::State> CallQueue::start(std::function<void()> call, bool may_run_here) {
  auto state = std::make_shared<Work::State>();
  state->call = std::move(call);

  std::unique_lock lock(mutex_);
  if (may_run_here && queue_.empty() && !running_) {
    const auto begin = Clock::now();
    queue_.push_back(state);
    run_next(lock);
    add_exposed(*state, ns_since(begin));
    return state;
  }
  if (!thread_.joinable()) thread_ = std::thread([this] { thread_main(); });
  state->queue = weak_from_this();
  queue_.push_back(state);
  lock.unlock();
  changed_.notify_one();
  return state;
}

void CallQueue::wait(Work::State& state) {
  const auto begin = Clock::now();
  {
    std::unique_lock lock(mutex_);
    // The oldest call goes first, so this may run others on the way to its own.
    while (!state.done() && !running_ && !queue_.empty()) run_next(lock);
  }
  state.block_until_done();
  add_exposed(state, ns_since(begin));
}

void CallQueue::run_next(std::unique_lock<std::mutex>& lock) {
  const std::shared_ptr<Work::State> state = std::move(queue_.front());
  queue_.pop_front();
  running_ = state;
  lock.unlock();
  execute(*state);
  lock.lock();
  running_ = nullptr;
  if (closing_ || !queue_.empty()) changed_.notify_one();
}

void CallQueue::execute(Work::State& state) {
  if (finished_by_) {
    state.error = finished_by_;  // the peers are elsewhere: what follows cannot match
  } else {
    try {
      state.call();
    } catch (const UsageError&) {
      state.error = std::current_exception();  // nothing was sent: the group lives on
    } catch (...) {
      state.error = finished_by_ = std::current_exception();
    }
  }
  state.call = nullptr;
  state.complete.store(1, std::memory_order_release);
  state.complete.notify_all();
}

void CallQueue::thread_main() {
  pthread_setname_np(pthread_self(), thread_name_.c_str());
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !running_ && (closing_ || !queue_.empty()); });
    if (queue_.empty()) return;
    run_next(lock);
  }
}

void CallQueue::add_exposed(Work::State& state, int64_t ns) {
  state.exposed_ns.fetch_add(ns, std::memory_order_relaxed);
  exposed_ns_.fetch_add(ns, std::memory_order_relaxed);
}

double CallQueue::exposed_seconds() const {
  return static_cast<double>(exposed_ns_.load(std::memory_order_relaxed)) * 1e-9;
}

void CallQueue::reset_exposed() { exposed_ns_.store(0, std::memory_order_relaxed); }

int CallQueue::pending() const {
  std::lock_guard lock(mutex_);
  // A call that is complete is over, though the thread that ran it may not have come back yet: its
  // waiter may be ending on an error that has nothing to do with it.
  return static_cast<int>(queue_.size()) + (running_ && !running_->done() ? 1 : 0);
}

void CallQueue::close() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

}  // namespace detail
}  // namespace lockstep
