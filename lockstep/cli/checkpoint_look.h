/// `lockstep checkpoint ls` and `inspect`: what is there.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

// Each runs `lockstep checkpoint NAME ARGS...` and returns the exit code.
int checkpoint_ls(const std::vector<std::string>& args);
int checkpoint_inspect(const std::vector<std::string>& args);

}  // namespace lockstep::cli
