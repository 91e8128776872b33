/// `lockstep generate`: text that a model writes.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Runs `lockstep generate ARGS...` and returns the exit code. Errors come out as lockstep::Error.
int generate_command(const std::vector<std::string>& args);

}  // namespace lockstep::cli
