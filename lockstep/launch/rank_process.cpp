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

bool is_program(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
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
  sigprocmask(SIG_SETMASK, &p.options.signal_mask, nullptr);
  // A refusal is harmless: the rank then runs anywhere.
  if (p.options.core >= 0) sched_setaffinity(0, sizeof p.cores, &p.cores);
  dup2(p.null_input, STDIN_FILENO);
  if (p.options.log >= 0) dup2(p.options.log, STDERR_FILENO);
  if (!p.options.own_stdout) dup2(STDERR_FILENO, STDOUT_FILENO);
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
    if (is_program(name)) return name;
    throw UsageError(base::str("cannot start ", name, ": there is no such program.\n  ",
                               "Is the installation complete? `lockstep doctor` looks."));
  }
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = folder + "/" + name;
    if (!folder.empty() && is_program(file)) return file;
  }
  throw UsageError(base::str("cannot start ", name, ": there is no such program in PATH.\n  ",
                             "A program of this folder is written ./", name));
}

pid_t spawn(const SpawnOptions& options) {
  std::array<int, 2> report{};
  if (pipe2(report.data(), O_CLOEXEC) != 0) {
    throw EnvironmentError(base::str("cannot start a rank: pipe: ", std::strerror(errno)));
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
    throw UsageError(base::str("cannot start ", options.program, ": ", std::strerror(reason)));
  }
  return pid;
}

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) cores.push_back(core);
    }
  }
  return cores;
}

}  // namespace lockstep::launch
