/// Dropout of a tensor that holds pieces of the samples' logical tensors, in any order.
///
/// The draw for an element is keyed by (seed, step, sample of the step, layer, purpose) and counted
/// by its index in the sample's logical tensor. So ranks that hold the same elements drop the same
/// ones, ranks that hold others draw others, and no cut changes a draw.
///
///   logical tensor of a sample     [S, D] of the residual stream    [H, S, S] of attention
///   pieces, in memory              x[t, b]: slice t of sample b     sample b's heads of grain t
///
/// Holds   nothing: a draw is a function of its key and count, and backward draws again
/// Source  docs/concepts/sequence.md
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "lockstep/comm/rank_context.h"
#include "lockstep/plan/tensor_place.h"

namespace lockstep::parallel {

/// A piece: elements of `sample` of the micro-batch from `first` on. All pieces are equally long.
struct Run {
  int64_t sample = 0;
  int64_t first = 0;
};

/// The pieces of [T, B, S/T, D], or of the slices `held` of it: token slices of `samples` samples,
/// each of `elements` elements.
std::vector<Run> token_runs(plan::LeafRange held, int64_t samples, int64_t elements);

/// The pieces of grain `grain` of [B, H, ...]: its heads of each sample, of `elements` elements.
std::vector<Run> head_runs(int grain, int64_t samples, int64_t elements);

/// `x` with each element dropped with probability `p`, the others scaled by 1 / (1 - p); `x` itself
/// if `p` is 0 or the context is not training. `x` is contiguous: the pieces one after the other.
at::Tensor run_dropout(const at::Tensor& x, const std::vector<Run>& runs, double p,
                       const RankContext& context, std::string_view layer,
                       std::string_view purpose);

}  // namespace lockstep::parallel
