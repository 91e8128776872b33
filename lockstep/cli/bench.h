/// `lockstep bench OP -n RANKS`: how fast collectives are here, in nccl-tests' columns.
///
/// Every rank writes its tensor anew before each timed call, as a backward pass does: a tensor that
/// lies in the right cache from the call before would flatter. A barrier, then the call; the time
/// of an iteration is that of its slowest rank.
///
/// Source  columns and bandwidths: NVIDIA/nccl-tests;  docs/concepts/collectives.md
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/cli/bench_options.h"
#include "lockstep/plan/collective_steps.h"

namespace lockstep::cli {

/// The rank that broadcasts.
inline constexpr int kBenchRoot = 0;

/// The plan of a call. `count`: elements of a rank's tensor; of each block or slice where a rank
/// has one for every rank.
plan::CollectivePlan plan_of(const BenchOptions& options, plan::Algorithm algorithm, int64_t count);

/// `algorithm` for everything, over the options' hosts.
plan::AlgorithmTable table_of(const BenchOptions& options, plan::Algorithm algorithm);

/// Bus bandwidth over algorithm bandwidth: what a link between ranks must carry.
double bus_factor(net::Operation operation, int ranks);

/// `lockstep bench ARGS`: starts the ranks and waits for them. 8 if a result was wrong.
int bench_command(const std::vector<std::string>& args);

/// What each of the started processes does; the same arguments. Not for users.
int bench_rank_command(const std::vector<std::string>& args);

}  // namespace lockstep::cli
