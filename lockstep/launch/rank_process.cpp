#include "lockstep/launch/rank_process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::launch {
namespace {

constexpr const char* kNotThere = "there is no such program";
constexpr const char* kNotExecutable = "it may not be executed";

/// Why `path` cannot be started; empty if it can.
std::string what_hinders(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return kNotThere;
  if (S_ISDIR(info.st_mode)) return "it is a folder";
  if (!S_ISREG(info.st_mode)) return "it is no regular file";
  if (access(path.c_str(), X_OK) != 0) return kNotExecutable;
  return "";
}

std::string what_helps(const std::string& name, const std::string& why) {
  if (why == kNotThere && name.ends_with("lockstep-worker")) {
    return "\n  Is the installation complete? `lockstep doctor` looks.";
  }
  if (why != kNotExecutable) return "";
  return base::str("\n  `chmod +x ", name, "` allows it; or name its interpreter: sh, python3.");
}

/// Everything the child needs, laid out before the fork.
struct Prepared {
  const SpawnOptions& options;
  std::vector<char*> argv;
  std::vector<char*> envp;
  cpu_set_t cores;
  pid_t parent;
  int null_input;
  int report;  // the write end of a pipe that closes on exec
};

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

/// Runs between fork and exec: system calls only.
[[noreturn]] void become(const Prepared& p) {
  const auto give_up = [&p] {
    const int reason = errno;
    [[maybe_unused]] const auto written = write(p.report, &reason, sizeof reason);
    _exit(127);
  };
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) give_up();
  if (getppid() != p.parent) _exit(127);  // the launcher died before the line above
  // Its own group: Ctrl-C reaches the launcher alone, which decides; and one kill reaches whatever
  // the rank itself started.
  setpgid(0, 0);
  // A background group that writes to a terminal with `stty tostop` would be stopped.
  std::signal(SIGTTOU, SIG_IGN);
  // What `lockstep` ignores for its own writes is not for a program that never asked for it.
  std::signal(SIGPIPE, SIG_DFL);
  std::signal(SIGXFSZ, SIG_DFL);
  sigprocmask(SIG_SETMASK, &p.options.signal_mask, nullptr);
  // A refusal is harmless: the rank then runs anywhere.
  if (p.options.core >= 0) sched_setaffinity(0, sizeof p.cores, &p.cores);
  dup2(p.null_input, STDIN_FILENO);
  if (p.options.out >= 0) dup2(p.options.out, STDOUT_FILENO);
  if (p.options.err >= 0) dup2(p.options.err, STDERR_FILENO);
  for (const int fd : p.options.inherited) {
    if (fcntl(fd, F_SETFD, 0) != 0) give_up();
  }
  execve(p.options.program.c_str(), p.argv.data(), p.envp.data());
  give_up();
  _exit(127);
}

}  // namespace

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    const std::string why = what_hinders(name);
    if (why.empty()) return name;
    throw UsageError(base::str("cannot start ", name, ": ", why, ".", what_helps(name, why)));
  }
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = folder + "/" + name;
    if (!folder.empty() && what_hinders(file).empty()) return file;
  }
  throw UsageError(base::str("cannot start ", name, ": there is no such program in PATH.\n  ",
                             "A program of this folder is written ./", name));
}

pid_t spawn(const SpawnOptions& options) {
  std::array<int, 2> report{};
  if (pipe2(report.data(), O_CLOEXEC) != 0) {
    throw EnvironmentError(base::str("cannot start a rank: pipe: ", std::strerror(errno),
                                     ".\n  `ulimit -n` shows how many files may be open."));
  }
  const int null_input = open("/dev/null", O_RDONLY | O_CLOEXEC);

  Prepared prepared{options,
                    pointers_to(options.arguments),
                    pointers_to(options.environment),
                    {},
                    getpid(),
                    null_input,
                    report[1]};
  CPU_ZERO(&prepared.cores);
  if (options.core >= 0) CPU_SET(options.core, &prepared.cores);

  const pid_t pid = fork();
  if (pid == 0) become(prepared);
  const int fork_error = errno;
  close(report[1]);
  if (null_input >= 0) close(null_input);
  if (pid < 0) {
    close(report[0]);
    throw EnvironmentError(base::str("cannot start a rank: fork: ", std::strerror(fork_error),
                                     ".\n  `ulimit -u` shows how many processes are allowed."));
  }

  // Nothing comes out of the pipe when exec succeeds: the end of the pipe closes.
  int reason = 0;
  ssize_t got = 0;
  do {
    got = read(report[0], &reason, sizeof reason);
  } while (got < 0 && errno == EINTR);
  close(report[0]);
  if (got == static_cast<ssize_t>(sizeof reason)) {
    waitpid(pid, nullptr, 0);
    throw UsageError(base::str(
        "cannot start ", options.program, ": ", std::strerror(reason),
        reason == ENOEXEC ? ".\n  A script begins with its interpreter's line: #!/bin/sh" : "."));
  }
  return pid;
}

std::vector<std::string> own_environment() {
  std::vector<std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    variables.emplace_back(*entry);
  }
  return variables;
}

}  // namespace lockstep::launch
