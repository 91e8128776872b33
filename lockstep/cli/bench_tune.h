/// `lockstep bench --tune FILE`: every algorithm that keeps the order of the sum tree, over sizes,
/// and which of them is the fastest.
///
/// Each round is a benchmark of its own, in which all candidates of an operation are measured: what
/// disturbs the machine for a while disturbs one round of all of them. An algorithm takes a size
/// from the built-in choice only if it wins by more than the rounds lay apart.
///
/// Source  docs/concepts/choosing_algorithms.md
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "lockstep/cli/bench_options.h"
#include "lockstep/plan/tuned_table.h"

namespace lockstep::cli {

/// What `lockstep bench OPERATION --json` printed in each round -> sizes with the times of all
/// candidates, in rising order of bytes. Sizes of no element are left out.
std::vector<plan::SizeTimes> times_of(const std::vector<nlohmann::json>& rounds);

/// Measures for each of the options' engines, and adds a section for it to the file, or puts it in
/// the place of an earlier one. Returns the exit code.
int tune(const BenchOptions& options);

}  // namespace lockstep::cli
