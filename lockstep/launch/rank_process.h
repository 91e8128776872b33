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
  int log = -1;                          // where stderr goes; -1: the caller's stderr
  bool own_stdout = true;                // false: stdout goes where stderr goes
  int core = -1;                         // the core to run on; -1: any
  sigset_t signal_mask{};                // of the new process
};

/// The file that `name` stands for: itself when it has a slash, else the first in PATH. Throws
/// UsageError when there is no such program.
std::string find_program(const std::string& name);

/// Starts the process, in a process group of its own, with an empty stdin, to be killed when the
/// calling thread ends. Returns once the program runs. Throws UsageError: it cannot be executed;
/// EnvironmentError: the system gives no more processes.
pid_t spawn(const SpawnOptions& options);

/// The cores that this process may use, in rising order.
std::vector<int> allowed_cores();

}  // namespace lockstep::launch
