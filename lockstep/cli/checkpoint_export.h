/// `lockstep checkpoint export`: a model for other programs.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Runs `lockstep checkpoint export ARGS...`. Errors come out as lockstep::Error.
int checkpoint_export(const std::vector<std::string>& args);

}  // namespace lockstep::cli
