/// Column-parallel linear map: a layer whose output features are divided among tensor grains.
///
///   forward    x [T, B, S/T, D]  ->  y_t = x W_t^T + b_t  [T, B, S/T, F_t], for each own grain t
///   backward   dx = sum over t of dy_t W_t  |  dW_t = dy_t^T x, db_t     while dx is on its way
///
/// Moves   forward: nothing; with sequence parallelism an all-gather of x. Backward: an all-reduce
///         of dx, or a reduce-scatter; gathering x again costs one more all-gather
/// Holds   x once for all grains: whole, or own slices only if it is gathered again
/// Order   dx: sum tree over grains. Each product has the grain's own shape on every layout
/// Source  Shoeybi et al. 2019, arXiv:1909.08053, section 3; Korthikanti et al. 2022,
///         arXiv:2205.05198, section 4.2.1;  docs/concepts/tensor.md
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/parallel/tensor/grain_sum.h"

namespace lockstep::parallel {

struct ColumnOptions {
  /// With sequence parallelism: keep this rank's slices and gather the rest again in backward. Less
  /// memory, (t-1)/t of the input more traffic.
  bool gather_again = false;
};

/// One output for each grain of this rank.
///
/// x        [T, B, S/T, D], or this rank's slices with sequence parallelism; float32
/// weights  one (F_t, D) for each grain of this rank; `biases` (F_t) likewise, or empty
std::vector<at::Tensor> column_linear(const TensorGroup& group, const at::Tensor& x,
                                      const std::vector<at::Tensor>& weights,
                                      const std::vector<at::Tensor>& biases,
                                      const ColumnOptions& options = {});

}  // namespace lockstep::parallel
