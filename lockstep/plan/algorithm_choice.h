/// Which algorithm the formulas hold to be the fastest: rounds times latency, and bytes over
/// bandwidth (collective_cost.h), on hosts that are alike.
///
///   all_reduce     direct, ring       every round at the pace of the slowest link
///                  halving, binomial  with a power of two of ranks a host, the rounds over shorter
///                                     distances stay inside
///                  hierarchical       its parts, each on its link
///   other sums and moves              every round at the pace of the slowest link
///
/// Exact on equal links and powers of two of ranks: ModelledNetwork.ChoosesAsTheFormulasDo. What a
/// machine really does is measured by `lockstep bench --tune`.
/// Source  docs/concepts/choosing_algorithms.md
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/plan/algorithm_table.h"
#include "lockstep/plan/network_model.h"

namespace lockstep::plan {

/// `hosts` hosts of as many ranks each.
struct TwoLevels {
  int hosts = 1;
  int ranks_per_host = 1;
  Link inside;  // the slowest between two ranks of a host
  Link across;  // between hosts

  int ranks() const { return hosts * ranks_per_host; }
};

/// The hosts and links under the ranks of a network. Throws UsageError for hosts of unequal size.
TwoLevels two_levels(const Placement& placement);

/// Of a call with `bytes` a rank. `chunks`: of a pipelined tree. Throws UsageError for an algorithm
/// that the operation does not have, or whose time has no formula (tree, double_tree).
double expected_seconds(Collective operation, Algorithm algorithm, const TwoLevels& network,
                        double bytes, int chunks = 1);

/// The cheapest of those that keep the order of the sum tree; of equals the first of the
/// enumeration.
Algorithm cheapest(Collective operation, const TwoLevels& network, double bytes);

/// The rules of `cheapest` for sizes that rise: neighbours with one choice share a rule, up to the
/// largest of them; the last has no end.
AlgorithmTable cheapest_by_size(Collective operation, const TwoLevels& network,
                                const std::vector<int64_t>& sizes);

}  // namespace lockstep::plan
