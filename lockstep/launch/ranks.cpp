#include "lockstep/launch/ranks.h"

#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "lockstep/launch/process_state.h"

namespace lockstep::launch {
namespace {

constexpr int kUnknownEnd = 255;

}  // namespace

Ranks::~Ranks() {
  send_all(SIGKILL);
  for (const Process& process : processes_) {
    if (process.ending) continue;
    if (guardian_) guardian_->forget(process.pid);
    waitpid(process.pid, nullptr, 0);
  }
}

void Ranks::guard() {
  std::vector<pid_t> groups;
  for (const Process& process : processes_) groups.push_back(process.pid);
  guardian_ = std::make_unique<Guardian>(groups);
}

int Ranks::running() const {
  return static_cast<int>(std::count_if(processes_.begin(), processes_.end(),
                                        [](const Process& process) { return !process.ending; }));
}

void Ranks::send(int index, int signal) {
  Process& process = processes_[static_cast<size_t>(index)];
  if (process.ending) return;
  if (signal != SIGCONT && signal != SIGUSR1 && signal != SIGUSR2) process.told = true;
  kill(signal == SIGKILL ? -process.pid : process.pid, signal);
}

void Ranks::send_all(int signal) {
  for (int index = 0; index < count(); ++index) send(index, signal);
}

std::optional<Ending> Ranks::reap(const Process& process) {
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(process.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
    // Somebody else in this program has waited for it: how it ended is lost.
    if (errno == ECHILD) return Ending{.exit_code = kUnknownEnd, .signal = 0};
    return std::nullopt;
  }
  if (info.si_pid == 0) return std::nullopt;
  // While the rank is not yet reaped its group's number is still its own: end what it started.
  kill(-process.pid, SIGKILL);
  if (guardian_) guardian_->forget(process.pid);
  int status = 0;
  waitpid(process.pid, &status, 0);
  return Ending::from_wait_status(status);
}

std::vector<int> Ranks::collect() {
  std::vector<int> ended;
  for (int index = 0; index < count(); ++index) {
    Process& process = processes_[static_cast<size_t>(index)];
    if (process.ending) continue;
    process.ending = reap(process);
    if (process.ending) ended.push_back(index);
  }
  order_.insert(order_.end(), ended.begin(), ended.end());
  return ended;
}

int Ranks::stopped_longer_than(Clock::duration patience) {
  const auto now = Clock::now();
  for (int index = 0; index < count(); ++index) {
    Process& process = processes_[static_cast<size_t>(index)];
    if (process.ending || !is_stopped(process.pid)) {
      process.stopped_since.reset();
      continue;
    }
    if (!process.stopped_since) process.stopped_since = now;
    if (now - *process.stopped_since > patience) return index;
  }
  return -1;
}

}  // namespace lockstep::launch
