/// `lockstep trace`: the timeline of a run as a picture, and its figures by rank.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Runs `lockstep trace ARGS...` and returns the exit code. Errors come out as lockstep::Error.
int trace_command(const std::vector<std::string>& args);

}  // namespace lockstep::cli
