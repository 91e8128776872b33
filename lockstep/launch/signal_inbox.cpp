#include "lockstep/launch/signal_inbox.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::launch {
namespace {

bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

SignalInbox::SignalInbox() {
  sigemptyset(&caught_);
  sigaddset(&caught_, SIGCHLD);
  for (const int signal : {SIGINT, SIGTERM, SIGURG, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    if (!is_ignored(signal)) sigaddset(&caught_, signal);
  }
  fd_ = signalfd(-1, &caught_, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd_ < 0) {
    throw EnvironmentError(base::str("cannot watch for signals: signalfd: ", std::strerror(errno)));
  }
  struct sigaction keep_exit_codes {};
  keep_exit_codes.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &keep_exit_codes, &outer_child_action_);
  pthread_sigmask(SIG_BLOCK, &caught_, &outer_mask_);
}

SignalInbox::~SignalInbox() {
  // What came too late to matter must not strike when the mask is lifted.
  while (next(std::chrono::milliseconds(0))) {
  }
  close(fd_);
  sigaction(SIGCHLD, &outer_child_action_, nullptr);
  pthread_sigmask(SIG_SETMASK, &outer_mask_, nullptr);
}

std::optional<int> SignalInbox::next(std::chrono::milliseconds patience,
                                     std::vector<pollfd> others) {
  others.push_back({fd_, POLLIN, 0});
  if (poll(others.data(), others.size(), static_cast<int>(patience.count())) <= 0) {
    return std::nullopt;
  }
  signalfd_siginfo info{};
  if (read(fd_, &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return std::nullopt;
  const auto signal = static_cast<int>(info.ssi_signo);
  return signal == SIGURG ? SIGTERM : signal;
}

}  // namespace lockstep::launch
