/// `lockstep checkpoint import`: a model of another program as a model file of Lockstep.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Runs `lockstep checkpoint import ARGS...`. Errors come out as lockstep::Error.
int checkpoint_import(const std::vector<std::string>& args);

}  // namespace lockstep::cli
