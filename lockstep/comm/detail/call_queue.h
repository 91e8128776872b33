/// The order of a group's calls: first in, first out, one at a time.
///
///   caller      start(A, large)   start(B, small)        start(C, small)      wait(D)
///   queue       [A]               [A B]: not overtaken   []: runs C at once   []: runs D itself
///   ls-comm-dp  ... A ......... B ...                                          (not begun yet)
///
/// Three kinds of thread run calls, never two at once: the group's communication thread, a caller
/// whose call is small and finds nothing before it, and a waiter whose call has not begun (a thread
/// that sleeps anyway is sooner there than one that must first be woken).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "lockstep/comm/detail/work_state.h"

namespace lockstep::detail {

class CallQueue : public std::enable_shared_from_this<CallQueue> {
 public:
  /// `name` is the group's; its first letters name the thread.
  explicit CallQueue(const std::string& name);
  ~CallQueue();

  /// Queues `call`, or runs it before returning if `may_run_here` and nothing is before it. What it
  /// throws comes out of wait().
  std::shared_ptr<Work::State> start(std::function<void()> call, bool may_run_here);

  /// Returns when `state` is complete. The time goes to the exposed seconds of group and work.
  void wait(Work::State& state);

  double exposed_seconds() const;
  void reset_exposed();

  /// Calls that are queued or running.
  int pending() const;

  /// Ends and joins the thread. Every call ends first, so if calls are pending the caller aborts
  /// the group before.
  void close();

 private:
  void run_next(std::unique_lock<std::mutex>& lock);
  void execute(Work::State& state);
  void thread_main();
  void add_exposed(Work::State& state, int64_t ns);

  const std::string thread_name_;
  std::atomic<int64_t> exposed_ns_{0};

  mutable std::mutex mutex_;         // guards what follows
  std::condition_variable changed_;  // tells the thread of new calls, of a free turn and of closing
  std::deque<std::shared_ptr<Work::State>> queue_;  // oldest first
  std::shared_ptr<Work::State> running_;            // the call under way, on whichever thread
  bool closing_ = false;
  std::thread thread_;  // started when a call first has to wait for it

  /// What finished the group. Touched only by the thread that is inside a call.
  std::exception_ptr finished_by_;
};

}  // namespace lockstep::detail
