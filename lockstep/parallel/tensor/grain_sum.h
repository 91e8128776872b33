/// Sums and gathers over tensor grains: the only places where tensor-parallel layers communicate.
///
///                 without sequence parallelism        with
///   joins to      the whole, on every rank            own token slices, on their rank
///   by            all-reduce                          reduce-scatter
///   back by       nothing                             all-gather
///
/// Moves   all-reduce 2 (t-1)/t, reduce-scatter and all-gather (t-1)/t of the whole, for t ranks of
///         one whole subtree each; nothing where all grains are here
/// Holds   log2(grains) + 1 parts at most while a rank folds its own
/// Order   sum tree over grain index, whoever holds them; the first term is a copy
/// Source  Shoeybi et al. 2019, arXiv:1909.08053; Korthikanti et al. 2022, arXiv:2205.05198
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/comm/rank_context.h"
#include "lockstep/fused/product.h"
#include "lockstep/plan/tensor_place.h"

namespace lockstep::parallel {

/// Who computes which grains, and where weight gradients go.
struct TensorGroup {
  std::shared_ptr<ProcessGroup> tp;  // null: all grains are here
  plan::TensorPlace place;
  std::shared_ptr<WeightQueue> weight_queue;  // null: backward computes weight gradients
  fused::Arithmetic arithmetic = {};

  static TensorGroup of(const RankContext& context) {
    return {context.tp, context.tensor, context.weight_queue, context.arithmetic};
  }
  int grains() const { return place.grains; }
  int local() const { return place.local.size(); }
  /// The token slices that activations between layers have on this rank.
  plan::LeafRange slices() const {
    return place.sequence ? place.local : plan::LeafRange{0, place.grains};
  }
};

/// The part of grain `index` (of all, not of the rank's own): a new contiguous tensor.
using GrainPart = std::function<at::Tensor(int index)>;

/// A tensor that is on its way. Communication goes on while the caller computes.
class Pending {
 public:
  explicit Pending(at::Tensor ready) : tensor_(std::move(ready)) {}
  Pending(at::Tensor coming, Work work) : tensor_(std::move(coming)), work_(std::move(work)) {}
  at::Tensor wait();

 private:
  at::Tensor tensor_;
  std::optional<Work> work_;
};

/// The sum of all grains' parts, on every rank.
Pending sum_grains(const TensorGroup& group, const GrainPart& part);

/// The same, where each part is the sum's share of a token slice: a rank that holds all slices adds
/// alone, others bring their own slices'.
Pending sum_slices(const TensorGroup& group, const GrainPart& part);

/// The sum of all grains' parts [T, ...]: whole, or with sequence parallelism this rank's slices.
Pending join_grains(const TensorGroup& group, const GrainPart& part);

/// What a rank has before it meets the others', of the shape of sum_grains or, with `joins`, of
/// join_grains: what is wrong if a sum is left out (base/planted_fault.h).
Pending own_part(const TensorGroup& group, const GrainPart& part, bool joins);

/// The whole [T, ...] of what join_grains gives: `x` itself without sequence parallelism.
Pending whole_of(const TensorGroup& group, const at::Tensor& x);

}  // namespace lockstep::parallel
