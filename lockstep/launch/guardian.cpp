#include "lockstep/launch/guardian.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>

namespace lockstep::launch {
namespace {

constexpr int kMostGroups = 4096;

/// The life of the guardian. System calls only: the process that forked may have had threads.
[[noreturn]] void guard(int pipe) {
  setsid();  // neither Ctrl-C nor the terminal's end reaches it
  prctl(PR_SET_NAME, "lockstep-guard");
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE}) {
    std::signal(signal, SIG_IGN);
  }
  // Nobody who waits for the end of a pipe waits for this process.
  dup2(pipe, 0);
  close_range(1, UINT_MAX, 0);

  std::array<pid_t, kMostGroups> groups{};
  int count = 0;
  pid_t word = 0;
  for (;;) {
    const ssize_t got = read(0, &word, sizeof word);
    if (got < 0 && errno == EINTR) continue;
    if (got != static_cast<ssize_t>(sizeof word)) break;
    if (word > 0 && count < kMostGroups) groups[static_cast<size_t>(count++)] = word;
    for (int i = 0; word < 0 && i < count; ++i) {
      if (groups[static_cast<size_t>(i)] != -word) continue;
      groups[static_cast<size_t>(i)] = groups[static_cast<size_t>(--count)];
      break;
    }
  }
  for (int i = 0; i < count; ++i) kill(-groups[static_cast<size_t>(i)], SIGKILL);
  _exit(0);
}

}  // namespace

Guardian::Guardian(const std::vector<pid_t>& groups) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return;
  pipe_.reset(ends[1]);
  // Before there is a guardian: from its first moment it knows them all.
  for (const pid_t group : groups) tell(group);
  pid_ = fork();
  if (pid_ == 0) {
    pipe_.reset();
    guard(ends[0]);
  }
  close(ends[0]);
}

Guardian::~Guardian() {
  pipe_.reset();
  if (pid_ > 0) {
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

void Guardian::forget(pid_t group) { tell(-group); }

void Guardian::tell(pid_t word) {
  // A word is shorter than what a pipe takes in one piece. If the guardian is gone, so be it; the
  // caller has SIGPIPE ignored or blocked.
  [[maybe_unused]] const auto written = write(pipe_.get(), &word, sizeof word);
}

}  // namespace lockstep::launch
