/// Cross-entropy of logits whose columns are divided among tensor grains: no rank holds a row.
///
///   m = max over grains    s = sum over grains of sum exp(l - m)    z = l[target] - m, of its
///   grain loss = log s - z       dl = g (exp(l - m) / s - [target])
///
/// Moves   for N tokens: an all-reduce of N maxima, one of 2 N sums; backward: nothing (the head
///         below is a column-parallel layer)
/// Holds   exp(l - m) of own grains, s and the targets
/// Order   s and z: sum tree over grains. The maximum is free of order
/// Source  Shoeybi et al. 2019, arXiv:1909.08053, section 3;  docs/concepts/tensor.md
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "lockstep/parallel/tensor/grain_sum.h"

namespace lockstep::parallel {

/// A target that does not count: its loss and its gradient are zero.
inline constexpr int64_t kIgnored = -100;

/// The loss of each token in nats, [N], on every rank, in the order of the rows.
///
/// logits    one [N, vocab_rows] for each grain of this rank; columns that pad are left out
/// targets   [N] int64, in [0, vocab) or kIgnored
/// throws    UsageError: another target
at::Tensor vocab_cross_entropy(const TensorGroup& group, const std::vector<at::Tensor>& logits,
                               const at::Tensor& targets, int64_t vocab);

/// [N, vocab]: all grains' columns side by side, on every rank, without those that pad. No graph:
/// for generation and evaluation.
at::Tensor whole_logits(const TensorGroup& group, const std::vector<at::Tensor>& logits,
                        int64_t vocab);

}  // namespace lockstep::parallel
