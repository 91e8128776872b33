/// Writing to a connection that a peer has closed is an error, and no more: a write of Gloo's would
/// also send this process SIGPIPE, which ends it.
#pragma once

#include <csignal>
#include <ctime>

namespace lockstep {

/// While it lives, SIGPIPE does not reach this thread, nor threads that are started meanwhile.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoSigpipe() {
    if (sigismember(&before_, SIGPIPE) == 1) return;
    const timespec at_once{};
    sigtimedwait(&pipe_, nullptr, &at_once);  // what came meanwhile is not for later
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
};

}  // namespace lockstep
