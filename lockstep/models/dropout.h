/// Dropout whose mask is a function of what is dropped, not of who drops it or when.
///
/// The draw for an element is keyed by (seed, step, sample of the step, layer, purpose) and counted
/// by the element's index in the logical tensor of that sample: no cut of the batch, no recompute
/// and no other layer changes it.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

#include "lockstep/comm/rank_context.h"

namespace lockstep::models {

/// `x` with each element dropped with probability `p`, the others scaled by 1 / (1 - p); `x` itself
/// if `p` is 0 or the context is not training.
///
/// x        float32, contiguous; the samples of the micro-batch lie one after the other
/// samples  in `x`; element i of a sample is element i of its logical tensor
at::Tensor dropout(const at::Tensor& x, int64_t samples, double p, const RankContext& context,
                   std::string_view layer, std::string_view purpose);

}  // namespace lockstep::models
