#include "lockstep/files/detail/run_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"

extern char** environ;

namespace lockstep::files::detail {
namespace {

constexpr size_t kKeptOutput = 64 * KiB;

struct Fd {
  int fd = -1;
  ~Fd() { reset(); }
  void reset() {
    if (fd >= 0) close(fd);
    fd = -1;
  }
};

/// Signals that end a program, held back and readable from a descriptor while this lives.
class HeldSignals {
 public:
  HeldSignals() {
    sigset_t held;
    sigemptyset(&held);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&held, signal);
    pthread_sigmask(SIG_BLOCK, &held, &before_);
    inbox_.fd = signalfd(-1, &held, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~HeldSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  int fd() const { return inbox_.fd; }
  const sigset_t& before() const { return before_; }

  /// The next one that came, or 0.
  int next() const {
    signalfd_siginfo info{};
    return read(inbox_.fd, &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo)
                                                              : 0;
  }

 private:
  sigset_t before_;
  Fd inbox_;
};

std::vector<char*> c_strings(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const auto& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

/// Our environment with LC_ALL=C: messages that are the same everywhere.
std::vector<std::string> c_locale_environment() {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "LC_ALL=", 7) != 0) variables.emplace_back(*entry);
  }
  variables.emplace_back("LC_ALL=C");
  return variables;
}

pid_t start(const std::vector<std::string>& arguments, const std::string& folder, int output,
            const sigset_t& signals) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &signals);
  // We may ignore these; programs of a pipe count on being ended by them.
  sigset_t at_default;
  sigemptyset(&at_default);
  for (const int signal : {SIGPIPE, SIGXFSZ}) sigaddset(&at_default, signal);
  posix_spawnattr_setsigdefault(&attributes, &at_default);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);

  const auto environment = c_locale_environment();
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, arguments[0].c_str(), &actions, &attributes,
                                 c_strings(arguments).data(), c_strings(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    throw EnvironmentError(base::str("cannot run ", arguments[0], ": ", std::strerror(error), "."));
  }
  return pid;
}

/// Collects output until the program closes it; returns the last signal passed on, or 0.
int collect(int output, pid_t pid, const HeldSignals& signals, std::string* text) {
  int interrupted = 0;
  while (true) {
    pollfd sources[] = {{.fd = output, .events = POLLIN, .revents = 0},
                        {.fd = signals.fd(), .events = POLLIN, .revents = 0}};
    if (poll(sources, 2, -1) < 0 && errno != EINTR) return interrupted;
    while (const int signal = signals.next()) {
      interrupted = signal;
      kill(pid, signal);
    }
    if ((sources[0].revents & (POLLIN | POLLHUP)) == 0) continue;
    char piece[4096];
    const ssize_t n = read(output, piece, sizeof piece);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return interrupted;
    text->append(piece, static_cast<size_t>(n));
    if (text->size() > 2 * kKeptOutput) text->erase(0, text->size() - kKeptOutput);
  }
}

}  // namespace

ProgramResult run_program(const std::vector<std::string>& arguments, const std::string& folder) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    throw EnvironmentError(
        base::str("cannot run ", arguments[0], ": no pipe: ", std::strerror(errno), "."));
  }
  Fd reader{ends[0]};
  Fd writer{ends[1]};
  HeldSignals signals;
  const pid_t pid = start(arguments, folder, writer.fd, signals.before());
  writer.reset();

  ProgramResult result;
  const int interrupted = collect(reader.fd, pid, signals, &result.output);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (interrupted != 0) {
    throw Error(base::str(arguments[0], " was interrupted by ", strsignal(interrupted), "."),
                128 + interrupted);
  }
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (result.output.size() > kKeptOutput) {
    result.output.erase(0, result.output.size() - kKeptOutput);
  }
  return result;
}

}  // namespace lockstep::files::detail
