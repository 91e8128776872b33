/// Runs another program and waits for it, without a shell.
#pragma once

#include <string>
#include <vector>

namespace lockstep::files::detail {

struct ProgramResult {
  int exit_code = 0;   // 128 + signal if a signal ended it
  std::string output;  // stdout and stderr together; the last 64 KiB
};

/// Runs `arguments` (the first is looked up in PATH) in `folder`, with an empty stdin and the C
/// locale. A SIGINT, SIGTERM or SIGHUP that comes meanwhile is passed on, and once the program has
/// ended this throws Error with exit code 128 + signal: so what the caller holds is cleaned up.
///
/// Called from the main thread of a process without others.
/// throws  EnvironmentError: the program cannot be started
ProgramResult run_program(const std::vector<std::string>& arguments, const std::string& folder);

}  // namespace lockstep::files::detail
