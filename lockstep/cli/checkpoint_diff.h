/// `lockstep checkpoint diff`: what differs between two checkpoints or models.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Runs `lockstep checkpoint diff ARGS...`. 0: equal; 1: something differs that is a model's, or
/// that a run goes on from.
int checkpoint_diff(const std::vector<std::string>& args);

}  // namespace lockstep::cli
