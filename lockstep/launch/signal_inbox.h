/// Signals as messages: while it lives, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 and
/// SIGCHLD of this process are read from a descriptor instead of interrupting whatever runs.
/// SIGURG is read as SIGTERM: an mpirun can pass it on and leaves the ranks time to finish.
/// Signals that the caller ignored stay ignored, except SIGCHLD: a process that ignores it loses
/// its children's exit codes.
#pragma once

#include <poll.h>

#include <chrono>
#include <csignal>
#include <optional>
#include <vector>

namespace lockstep::launch {

class SignalInbox {
 public:
  SignalInbox();
  ~SignalInbox();
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;

  /// The next signal; nothing after `patience`, or when one of `others` is ready.
  std::optional<int> next(std::chrono::milliseconds patience, std::vector<pollfd> others = {});

  /// The mask that was in force before, for new processes.
  const sigset_t& outer_mask() const { return outer_mask_; }

 private:
  sigset_t caught_;
  sigset_t outer_mask_;
  struct sigaction outer_child_action_;
  int fd_ = -1;
};

}  // namespace lockstep::launch
