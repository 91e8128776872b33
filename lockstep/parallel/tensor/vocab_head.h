/// A language model's head and its cross-entropy in one, over tensor grains: the
/// vocabulary-parallel form of fused/token_loss.h. No rank holds a row of logits, and none all rows
/// of its own columns.
///
///   for 512 rows:   m = max over grains    s = sum over grains of sum exp(l - m)    z = l[target]
///                   loss = m + log s - z        dl = exp(l - m) / s - [target]
///                   dx_t = dl_t w_t,  dw_t += dl_t^T x, of each own grain t
///
/// Moves   for each block: an all-reduce of its maxima, one of sums and target logits; then dx, by
///         an all-reduce, or a reduce-scatter with sequence parallelism, whose all-gather of x
///         comes first. All in forward; without a graph dx does not travel
/// Holds   dx, dw of own grains; scratch: 512 rows of own logits
/// Order   s, z and dx: sum tree over grains. The maximum is free of order
/// Source  Shoeybi et al. 2019, arXiv:1909.08053, section 3;  docs/concepts/kernels.md
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "lockstep/parallel/tensor/column_linear.h"

namespace lockstep::parallel {

/// The loss of each token in nats, [N], on every rank, in the order of `targets`. With LibTorch's
/// operators, and where fp16 would round the logits' gradients, a head and then a loss.
///
/// x         [T, B, S/T, D], or this rank's slices with sequence parallelism; float32. Of one grain
///           any [..., D]
/// weights   one (vocab_rows, D) for each grain of this rank; rows that pad are left out
/// targets   [N] int64, as many as x has rows, in [0, vocab) or kIgnored: the token does not count
/// throws    UsageError: another target
at::Tensor head_losses(const TensorGroup& group, const at::Tensor& x,
                       const std::vector<at::Tensor>& weights, const at::Tensor& targets,
                       int64_t vocab, const ColumnOptions& options = {});

}  // namespace lockstep::parallel
