/// The `lockstep` command: a name, and a function that runs the rest of the line.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

inline constexpr const char* kVersion = "0.1.0";

/// Runs `lockstep ARGS...` and returns its exit code. Mistakes come out as lockstep::Error.
int run_command(const std::vector<std::string>& args);

}  // namespace lockstep::cli
