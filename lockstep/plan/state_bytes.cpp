#include "lockstep/plan/state_bytes.h"

#include <algorithm>

namespace lockstep::plan {
namespace {

constexpr int64_t kElement = 4;

/// Whole buffers of leaves that are folded locally.
int64_t local_levels(const StepInputs& inputs, int rank) {
  return std::max(1, plan_local_folds(inputs.leaves, rank).levels);
}

/// Whether a bucket's first gradient of a leaf comes before those of the buckets in front of it.
bool is_early(const StepInputs& inputs, size_t bucket) {
  if (static_cast<int>(bucket) == inputs.shards.root()) return true;
  const std::vector<int>& params = inputs.buckets.buckets[bucket].params;
  return std::any_of(params.begin(), params.end(), [&](int param) {
    return inputs.table.params[static_cast<size_t>(param)].uses.size() > 1;
  });
}

/// A bucket's buffer goes when the next one's reductions have begun; with several micro-batches a
/// leaf, all buckets wait for the last.
int64_t leaf_buffers(const StepInputs& inputs) {
  const std::vector<Bucket>& buckets = inputs.buckets.buckets;
  if (inputs.batch.micro_batches_per_grain > 1) return inputs.buckets.numel;
  int64_t most = 0;
  for (size_t b = 0; b < buckets.size(); ++b) {
    int64_t alive = buckets[b].numel + (b > 0 ? buckets[b - 1].numel : 0);
    for (size_t later = b + 1; later < buckets.size(); ++later) {
      if (is_early(inputs, later)) alive += buckets[later].numel;
    }
    most = std::max(most, alive);
  }
  return most;
}

int64_t most_gathered(const ShardLayout& layout) {
  int64_t alive = 0;
  int64_t most = 0;
  for (const auto& steps : {forward_units(layout, true), backward_units(layout)}) {
    for (const UnitStep& step : steps) {
      const int64_t numel = layout.units[static_cast<size_t>(step.unit)].numel;
      if (step.op == UnitStep::Op::gather) alive += numel;
      if (step.op == UnitStep::Op::release) alive -= numel;
      most = std::max(most, alive);
    }
  }
  return most;
}

}  // namespace

StateBytes planned_state(const StepInputs& inputs, int rank) {
  const ShardLayout& shards = inputs.shards;
  const int shard = rank % shards.options.ranks;
  const bool by_round = shards.options.stage >= Shard::zero2;
  StateBytes bytes;
  int64_t frozen = 0;
  int64_t owned = 0;
  for (const Param& param : inputs.table.params) {
    if (!param.trainable) frozen += param.numel * kElement;
    const int64_t further_uses =
        param.trainable ? (std::ssize(param.uses) - 1) * inputs.leaves.context_of(rank).size() : 0;
    bytes.side += further_uses * param.numel * kElement;
  }
  for (const Piece& piece : shards.pieces(shard)) owned += piece.size();
  bytes.parameters = shards.gathers()
                         ? (shards.owned_numel(shard) + shards.owned_numel(shard, false)) * kElement
                         : inputs.buckets.numel * kElement + frozen;
  if (by_round) {
    bytes.gradients = leaf_rounds(inputs, rank).levels * shards.owned_numel(shard) * kElement;
    bytes.leaf = leaf_buffers(inputs) * inputs.leaves.context_of(rank).size() * kElement;
  } else {
    bytes.gradients = local_levels(inputs, rank) * inputs.buckets.numel * kElement;
    if (shards.sharded()) {
      // One sum is left in place; several have slices of their own.
      const int levels = leaf_rounds(inputs, rank).levels;
      if (levels > 1) bytes.gradients += levels * shards.owned_numel(shard) * kElement;
    }
  }
  bytes.optimizer = traits_of(inputs.optimizer).moments * owned * kElement;
  bytes.gathered = most_gathered(shards) * kElement;
  return bytes;
}

}  // namespace lockstep::plan
