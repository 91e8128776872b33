/// `lockstep schedule`: a pipeline schedule, printed, proven and timed before anything runs.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Runs `lockstep schedule ARGS...` and returns the exit code. Errors come out as lockstep::Error.
int schedule_command(const std::vector<std::string>& args);

}  // namespace lockstep::cli
