/// The processes of a job: started in order, watched, ended together.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/launch/failure_report.h"
#include "lockstep/launch/guardian.h"

namespace lockstep::launch {

class Ranks {
 public:
  using Clock = std::chrono::steady_clock;

  Ranks() = default;
  /// Kills what still runs, and waits for it.
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  void add(pid_t pid) { processes_.push_back({.pid = pid}); }
  /// What ranks start ends with this process, from now on.
  void guard();

  int count() const { return static_cast<int>(processes_.size()); }
  int running() const;
  pid_t pid(int index) const { return at(index).pid; }
  const std::optional<Ending>& ending(int index) const { return at(index).ending; }
  /// It ended before any signal that this process sent.
  bool ended_unasked(int index) const { return at(index).ending && !at(index).told; }
  /// In which they were seen to end.
  const std::vector<int>& order() const { return order_; }

  /// To one rank, or to all that run. SIGKILL goes to what they have started too.
  void send(int index, int signal);
  void send_all(int signal);

  /// The ranks that have ended since the last call.
  std::vector<int> collect();

  /// The first rank that has been stopped for longer than `patience`, as far as calls of this tell;
  /// -1: none.
  int stopped_longer_than(Clock::duration patience);

 private:
  struct Process {
    pid_t pid = -1;
    std::optional<Ending> ending = {};
    bool told = false;  // it was sent a signal that may end it
    std::optional<Clock::time_point> stopped_since = {};
  };

  const Process& at(int index) const { return processes_[static_cast<size_t>(index)]; }
  std::optional<Ending> reap(const Process& process);

  std::vector<Process> processes_;
  std::vector<int> order_;
  std::unique_ptr<Guardian> guardian_;
};

}  // namespace lockstep::launch
