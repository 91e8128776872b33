/// `lockstep data`: training data made, and looked at.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Runs `lockstep data ARGS...` and returns the exit code. Errors come out as lockstep::Error.
int data_command(const std::vector<std::string>& args);

}  // namespace lockstep::cli
