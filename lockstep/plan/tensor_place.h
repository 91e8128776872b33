/// Which tensor grains a rank computes: a contiguous run of [0, grains).
///
///   place_of(4, 3, r)    rank 0: grains 0 1    rank 1: grain 2    rank 2: grain 3
///
/// A layer of T grains is a loop over the rank's own; what is summed over grains follows the sum
/// tree over their index (sum_tree.h), so the number of ranks changes no bit. With `sequence` the
/// activations between layers are divided too: the rank of grain t holds token slice t, positions
/// [t S/T, (t+1) S/T).
///
/// Source  Shoeybi et al. 2019, arXiv:1909.08053; Korthikanti et al. 2022, arXiv:2205.05198
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/plan/sum_plan.h"
#include "lockstep/plan/sum_tree.h"

namespace lockstep::plan {

struct TensorPlace {
  int grains = 1;
  LeafRange local{0, 1};                   // of this rank
  std::vector<LeafRange> by_rank{{0, 1}};  // of every rank of the tensor group
  bool sequence = false;

  /// Token slices that the activations between layers have on this rank.
  LeafRange slices() const { return sequence ? local : LeafRange{0, grains}; }
};

/// The place of `rank` among `ranks` that share `grains` grains: even runs, longer ones first.
/// Throws UsageError for fewer grains than ranks.
TensorPlace place_of(int grains, int ranks, int rank, bool sequence);

/// The terms that every rank brings to a sum over grains.
SumPlan grain_sum_plan(const TensorPlace& place);

}  // namespace lockstep::plan
