#include "lockstep/plan/batch_plan.h"

#include <algorithm>
#include <bit>
#include <string>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::plan {
namespace {

constexpr int kMostAutoGrains = 8;

/// The divisors of `number` on either side of `wanted`, nearest first: "4 or 8".
std::string nearest_divisors(int64_t number, int64_t wanted) {
  int64_t below = 0;
  int64_t above = 0;
  const auto consider = [&](int64_t divisor) {
    if (divisor < wanted) below = std::max(below, divisor);
    if (divisor > wanted) above = above == 0 ? divisor : std::min(above, divisor);
  };
  for (int64_t d = 1; d <= number / d; ++d) {
    if (number % d != 0) continue;
    consider(d);
    consider(number / d);
  }
  if (below == 0) return std::to_string(above);
  if (above == 0) return std::to_string(below);
  if (above - wanted < wanted - below) std::swap(above, below);
  return base::str(below, " or ", above);
}

/// The multiples of `step` on either side of `wanted`, which is none.
std::string nearest_multiples(int64_t step, int64_t wanted) {
  const int64_t below = wanted / step * step;
  const int64_t above = below + step;
  if (below == 0) return std::to_string(above);
  return wanted - below <= above - wanted ? base::str(below, " or ", above)
                                          : base::str(above, " or ", below);
}

int auto_grains(int64_t micro_batches) {
  int grains = kMostAutoGrains;
  while (micro_batches % grains != 0) grains /= 2;
  return grains;
}

}  // namespace

SampleRange BatchPlan::samples(int leaf, int micro) const {
  LOCKSTEP_ASSERT(0 <= leaf && leaf < grains && 0 <= micro && micro < micro_batches_per_grain,
                  "no such micro-batch in this step");
  const int64_t lo = (int64_t{leaf} * micro_batches_per_grain + micro) * micro_batch;
  return {lo, lo + micro_batch};
}

BatchPlan plan_batch(int64_t global_batch, int64_t micro_batch, int grains) {
  if (global_batch < 1 || micro_batch < 1) {
    throw UsageError(base::str("data.global_batch = ", global_batch,
                               " and data.micro_batch = ", micro_batch,
                               ": a batch needs at least one sample.\n  Set both to 1 or more."));
  }
  if (grains < 0) {
    throw UsageError(base::str("numerics.grains = ", grains,
                               ": a step has at least one leaf.\n  Set numerics.grains = 1 or "
                               "more, or \"auto\"."));
  }
  if (global_batch % micro_batch != 0) {
    throw UsageError(base::str(
        "data.global_batch = ", global_batch, " does not divide by data.micro_batch = ",
        micro_batch, ".\n  Set data.micro_batch = ", nearest_divisors(global_batch, micro_batch),
        ", or data.global_batch = ", nearest_multiples(micro_batch, global_batch), "."));
  }
  const int64_t micro_batches = global_batch / micro_batch;
  if (grains == 0) grains = auto_grains(micro_batches);
  if (micro_batches % grains != 0) {
    throw UsageError(base::str(
        "data.global_batch / data.micro_batch = ", global_batch, " / ", micro_batch, " = ",
        micro_batches, " micro-batches do not divide by numerics.grains = ", grains,
        ".\n  Set numerics.grains = ", nearest_divisors(micro_batches, grains),
        ", or data.global_batch = ", nearest_multiples(micro_batch * grains, global_batch), "."));
  }
  return {.global_batch = global_batch,
          .micro_batch = micro_batch,
          .grains = grains,
          .micro_batches_per_grain = static_cast<int>(micro_batches / grains)};
}

SampleRange clipped(SampleRange range, int64_t samples) {
  return {std::min(range.lo, samples), std::min(range.hi, samples)};
}

namespace {

/// Part `index` of `parts` of `leaves` leaves: the first ones hold one leaf more where they must.
LeafRange run_of_part(int leaves, int parts, int index) {
  const int each = leaves / parts;
  const int longer = leaves % parts;
  const auto start = [&](int part) { return part * each + std::min(part, longer); };
  return {start(index), start(index + 1)};
}

}  // namespace

LeafRange LeafSchedule::run_of(int rank) const {
  LOCKSTEP_ASSERT(assignment == LeafAssignment::contiguous, "round-robin leaves make no run");
  LOCKSTEP_ASSERT(0 <= rank && rank < ranks, "no such rank");
  return run_of_part(grains, ranks / context_ranks, rank / context_ranks);
}

LeafRange LeafSchedule::context_of(int rank) const {
  return run_of_part(context_grains, context_ranks, rank % context_ranks);
}

LeafRange LeafSchedule::run_of_replica(int replica) const {
  LOCKSTEP_ASSERT(0 <= replica && replica < replicas, "no such replica");
  if (assignment == LeafAssignment::round_robin) return run_of_part(grains, replicas, replica);
  const int each = ranks / replicas;
  return {run_of(replica * each).lo, run_of(replica * each + each - 1).hi};
}

std::vector<int> LeafSchedule::leaves_of(int rank) const {
  const bool in_turn = assignment == LeafAssignment::round_robin;
  const int replica = rank / (ranks / replicas);
  const int each = ranks / replicas / context_ranks;  // that go round
  const int first = in_turn ? rank / context_ranks % each : 0;
  const LeafRange run = in_turn ? run_of_replica(replica) : run_of(rank);
  std::vector<int> leaves;
  for (int leaf = run.lo + first; leaf < run.hi; leaf += in_turn ? each : 1) {
    leaves.push_back(leaf);
  }
  return leaves;
}

namespace {

/// Adds a run behind those before it, of which it may be the continuation.
void append(std::vector<LeafRange>& runs, LeafRange run) {
  if (run.size() == 0) return;
  if (!runs.empty() && runs.back().hi == run.lo) {
    runs.back().hi = run.hi;
  } else {
    runs.push_back(run);
  }
}

}  // namespace

std::vector<LeafRange> LeafSchedule::sum_runs(LeafRange run) const {
  std::vector<LeafRange> runs;
  for (int context = 0; context < context_grains; ++context) {
    append(runs, {sum_leaf(run.lo, context), sum_leaf(run.hi, context)});
  }
  return runs;
}

std::vector<LeafRange> LeafSchedule::sum_runs_of(int rank) const {
  std::vector<LeafRange> runs;
  const LeafRange own = context_of(rank);
  for (int context = own.lo; context < own.hi; ++context) {
    for (const int leaf : leaves_of(rank)) {
      append(runs, {sum_leaf(leaf, context), sum_leaf(leaf, context) + 1});
    }
  }
  return runs;
}

std::vector<LeafRange> LeafSchedule::terms_of(int rank) const {
  std::vector<LeafRange> terms;
  for (const LeafRange run : sum_runs_of(rank)) {
    const std::vector<LeafRange> whole = maximal_subtrees(sum_leaves(), run);
    terms.insert(terms.end(), whole.begin(), whole.end());
  }
  return terms;
}

int LeafSchedule::rank_of(int leaf) const {
  LOCKSTEP_ASSERT(0 <= leaf && leaf < grains, "no such leaf");
  const int data_ranks = ranks / context_ranks;
  const int parts = assignment == LeafAssignment::round_robin ? replicas : data_ranks;
  int part = 0;
  while (run_of_part(grains, parts, part).hi <= leaf) ++part;
  if (assignment == LeafAssignment::contiguous) return part * context_ranks;
  const int each = data_ranks / replicas;
  return (part * each + (leaf - run_of_replica(part).lo) % each) * context_ranks;
}

std::vector<Round> LeafSchedule::rounds_of(int rank, int micro_batches_per_grain) const {
  std::vector<Round> rounds;
  for (const int leaf : leaves_of(rank)) {
    for (int micro = 0; micro < micro_batches_per_grain; ++micro) rounds.push_back({leaf, micro});
  }
  const int data_ranks = ranks / context_ranks;
  const int each = data_ranks / replicas;
  const int replica = rank / (ranks / replicas);
  const int leaves_at_most = assignment == LeafAssignment::contiguous
                                 ? (grains + data_ranks - 1) / data_ranks
                                 : (run_of_replica(replica).size() + each - 1) / each;
  rounds.resize(static_cast<size_t>(leaves_at_most * micro_batches_per_grain));
  return rounds;
}

LeafSchedule plan_leaves(int grains, int ranks, LeafAssignment assignment, int replicas) {
  LOCKSTEP_ASSERT(replicas >= 1 && ranks % replicas == 0, "replicas are of equal size");
  if (grains < 1 || ranks < 1) {
    throw UsageError(base::str(grains, " leaves over ", ranks,
                               " data-parallel ranks: there must be at least one of each."));
  }
  if (ranks > grains) {
    const unsigned enough = std::bit_ceil(static_cast<unsigned>(ranks));
    throw UsageError(base::str(
        ranks, " data-parallel ranks but only ", grains, grains == 1 ? " leaf" : " leaves",
        " in a step: a rank would have nothing to compute.\n  Set numerics.grains = ", enough,
        " (needs data.global_batch / data.micro_batch to divide by ", enough, ") or start at most ",
        grains, grains == 1 ? " data-parallel rank." : " data-parallel ranks."));
  }
  return {.assignment = assignment, .ranks = ranks, .grains = grains, .replicas = replicas};
}

LeafSchedule divided_leaves(LeafSchedule data, int context_grains, int context_ranks) {
  LOCKSTEP_ASSERT(1 <= context_ranks && context_ranks <= context_grains,
                  "each rank has a grain of the context");
  data.ranks *= context_ranks;
  data.context_grains = context_grains;
  data.context_ranks = context_ranks;
  return data;
}

}  // namespace lockstep::plan
