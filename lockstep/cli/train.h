/// `lockstep train`: settings checked, a run folder made, the ranks of the run started.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Runs `lockstep train ARGS...` and returns the exit code. Whatever can be found wrong before a
/// rank starts is, and comes out as lockstep::Error.
int train_command(const std::vector<std::string>& args);

}  // namespace lockstep::cli
