/// `lockstep checkpoint`: look at checkpoints, prove them, compare them, bring them into other
/// files.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Runs `lockstep checkpoint ARGS...` and returns the exit code. Errors come out as
/// lockstep::Error.
int checkpoint_command(const std::vector<std::string>& args);

}  // namespace lockstep::cli
