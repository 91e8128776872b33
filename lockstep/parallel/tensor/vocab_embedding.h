/// Token and position embedding whose vocabulary is divided among tensor grains.
///
///   forward    x = (sum over t of rows of grain t, zeros for tokens of other grains) + positions
///   backward   a grain's rows get the gradients of its tokens, in row order
///
/// Moves   forward: an all-reduce of x [T, B, S/T, D]. With sequence parallelism a reduce-scatter,
///         and in backward an all-gather of dx and one of the position gradient's slices [S, D]
/// Order   the sum tree over grains; positions after it. A position's gradient: the samples' sum
/// Source  Shoeybi et al. 2019, arXiv:1909.08053, section 3;  docs/concepts/tensor.md
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "lockstep/parallel/tensor/grain_sum.h"

namespace lockstep::parallel {

/// Rows a grain of a vocabulary has: it is padded to a multiple of the grains.
int64_t vocab_rows(int64_t vocab, int grains);

/// [T, B, S/T, D], or this rank's slices with sequence parallelism.
///
/// ids        [T, B, S/T] int64, the whole micro-batch on every rank
/// weights    one (vocab_rows, D) for each grain of this rank
/// positions  (S or more, D), alike on every rank; undefined: none are added
/// throws     UsageError: an id outside [0, vocab); rows that pad are never looked up
at::Tensor vocab_embedding(const TensorGroup& group, const at::Tensor& ids,
                           const std::vector<at::Tensor>& weights, const at::Tensor& positions,
                           int64_t vocab);

}  // namespace lockstep::parallel
