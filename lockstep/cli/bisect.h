/// `lockstep bisect`: the first step and tensor in which two runs differ, or in which one run
/// differs from its own replay (cli/bisect_search.h).
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// The runs differ, or a run does not come to what it has recorded.
inline constexpr int kRunsDiffer = 1;

/// Runs `lockstep bisect ARGS...` and returns the exit code: 0 or kRunsDiffer. Runs that cannot be
/// compared, and replays that fail, come out as lockstep::Error.
int bisect_command(const std::vector<std::string>& args);

}  // namespace lockstep::cli
