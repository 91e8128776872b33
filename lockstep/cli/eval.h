/// `lockstep eval`: the validation loss of weights.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Runs `lockstep eval ARGS...` and returns the exit code. Errors come out as lockstep::Error.
int eval_command(const std::vector<std::string>& args);

}  // namespace lockstep::cli
