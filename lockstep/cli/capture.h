/// A program run to its end, its words kept.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

struct Captured {
  int exit_code = 0;   // 128 + the signal that killed it
  std::string output;  // of stdout and stderr together, without the last line feed
};

enum class Errors { kept, passed_on };

/// Runs `command` (a path and its arguments) in `environment` with an empty stdin. Errors that are
/// passed on go to this program's stderr: the output is of stdout alone. Throws EnvironmentError if
/// it cannot be started.
Captured capture(const std::vector<std::string>& command,
                 const std::vector<std::string>& environment, Errors errors = Errors::kept);

}  // namespace lockstep::cli
