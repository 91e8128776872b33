/// How a step's samples are cut into leaves and micro-batches, and which rank computes which leaf.
///
/// The cut is a function of the batch alone; ranks come in only with `LeafSchedule`. That is the
/// root of "a layout decides who computes, never what is computed".
///
///   global batch 16, micro-batch 4, 4 leaves:   leaf 0 = samples 0-3 | leaf 1 = 4-7 | ...
///   3 ranks, contiguous:    rank 0: leaves 0 1   rank 1: leaf 2, phantom   rank 2: leaf 3, phantom
///   3 ranks, round-robin:   rank 0: leaves 0 3   rank 1: leaf 1, phantom   rank 2: leaf 2, phantom
///
/// Where sequences are divided as well, into C context grains (context_place.h), each grain of a
/// leaf is a leaf of the sums: number c G + g for grain c of leaf g. Context ranks follow each
/// other among the ranks; they compute the same leaves, each its own grains of them.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/plan/sum_tree.h"

namespace lockstep::plan {

/// Samples lo <= sample < hi of a step.
struct SampleRange {
  int64_t lo = 0;
  int64_t hi = 0;
  int64_t size() const { return hi - lo; }
  auto operator<=>(const SampleRange&) const = default;
};

struct BatchPlan {
  int64_t global_batch = 0;         // samples in one optimizer step, all ranks
  int64_t micro_batch = 0;          // samples in one forward call
  int grains = 0;                   // leaves of the step, G
  int micro_batches_per_grain = 0;  // M
  int context_grains = 1;           // C

  /// What sums over the step have as leaves.
  int sum_leaves() const { return grains * context_grains; }

  /// The samples of micro-batch `micro` of `leaf`. In training all have micro_batch samples.
  SampleRange samples(int leaf, int micro) const;

  auto operator<=>(const BatchPlan&) const = default;
};

/// Cuts `global_batch` samples. `grains` 0 means auto: the largest power of two up to 8 that
/// divides global_batch / micro_batch. Throws UsageError, naming rule, numbers and the nearest
/// values that fit, if micro_batch does not divide global_batch or grains does not divide
/// global_batch / micro_batch.
BatchPlan plan_batch(int64_t global_batch, int64_t micro_batch, int grains);

/// `range` as far as there are samples: an evaluation batch, or data that ends, keeps the cut of
/// plan_batch, and the micro-batches at its end are short or empty.
SampleRange clipped(SampleRange range, int64_t samples);

enum class LeafAssignment { contiguous, round_robin };

/// One forward and backward of a rank: a real micro-batch, or a phantom one (leaf < 0) in which the
/// rank takes part in collectives only.
struct Round {
  int leaf = -1;
  int micro = -1;
  bool phantom() const { return leaf < 0; }
  auto operator<=>(const Round&) const = default;
};

/// Which leaves each rank computes, in rising order.
///
/// contiguous   rank r holds a run of leaves; runs differ by at most one in length, longer ones
///              first. Folded locally, reduced once a step.
/// round_robin  rank r holds leaves r, r + D, ...; each round's leaves are reduced at once. With
///              several replicas each takes a run of leaves, and its ranks go round in that.
struct LeafSchedule {
  LeafAssignment assignment = LeafAssignment::contiguous;
  int ranks = 0;
  int grains = 0;
  int replicas = 1;  // groups of ranks / replicas ranks that follow each other
  int context_grains = 1;
  int context_ranks = 1;  // that share each leaf; `ranks` is a multiple

  std::vector<int> leaves_of(int rank) const;
  /// The first rank that has it.
  int rank_of(int leaf) const;

  /// contiguous only: the run of leaves of `rank` (empty run possible).
  LeafRange run_of(int rank) const;
  /// The grains that `rank` computes of each of its leaves.
  LeafRange context_of(int rank) const;

  int sum_leaves() const { return grains * context_grains; }
  /// The leaf of sums that grain `context` of `leaf` is.
  int sum_leaf(int leaf, int context) const { return context * grains + leaf; }
  /// A rank's own leaves of sums, and what a whole replica has of leaves [run.lo, run.hi): runs, in
  /// rising order.
  std::vector<LeafRange> sum_runs_of(int rank) const;
  std::vector<LeafRange> sum_runs(LeafRange run) const;
  /// The maximal whole subtrees in them: the terms that a rank brings to a sum over the step.
  std::vector<LeafRange> terms_of(int rank) const;
  /// The run of leaves that the ranks of a replica hold together.
  LeafRange run_of_replica(int replica) const;

  /// ceil(G / D) * M rounds (of a replica's leaves and ranks) for every rank, so that all ranks
  /// take part in the same collectives.
  std::vector<Round> rounds_of(int rank, int micro_batches_per_grain) const;
};

/// Throws UsageError if there are more ranks than grains; the message names the value to set.
LeafSchedule plan_leaves(int grains, int ranks, LeafAssignment assignment, int replicas = 1);

/// The same where `context_ranks` ranks share each leaf's `context_grains` grains: `ranks` counts
/// them all.
LeafSchedule divided_leaves(LeafSchedule data, int context_grains, int context_ranks);

}  // namespace lockstep::plan
