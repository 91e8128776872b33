/// One process of a job: how it is started. fork + exec, with nothing between the two that could
/// take a lock or allocate.
#pragma once

#include <csignal>
#include <string>
#include <vector>

namespace lockstep::launch {

struct SpawnOptions {
  std::string program;                   // resolved: see find_program
  std::vector<std::string> arguments;    // argv, the program's name first
  std::vector<std::string> environment;  // "NAME=value"
  std::vector<int> inherited;            // descriptors that stay open under the same number
  int out = -1;                          // becomes stdout; -1: the caller's
  int err = -1;                          // becomes stderr; -1: the caller's
  int core = -1;                         // the core to run on; -1: any
  sigset_t signal_mask{};                // of the new process
};

/// The file that `name` stands for: itself when it has a slash, else the first in PATH. Throws
/// UsageError when there is no such program, or one that may not be executed.
std::string find_program(const std::string& name);

/// Starts the process, in a process group of its own, with an empty stdin, SIGPIPE and SIGXFSZ at
/// their defaults, to be killed when the calling thread ends. Returns once the program runs. Throws
/// UsageError: it cannot be executed; EnvironmentError: the system gives no more processes.
pid_t spawn(const SpawnOptions& options);

/// "NAME=VALUE" of every variable of this process.
std::vector<std::string> own_environment();

}  // namespace lockstep::launch
