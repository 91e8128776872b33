/// Row-parallel linear map: a layer whose input features are divided among tensor grains.
///
///   forward    z = (sum over t of h_t W_t^T) + b             the bias once, after the sum
///   backward   dh_t = dz W_t    dW_t = dz^T h_t    db = sum over the T token slices of dz
///
/// Moves   forward: an all-reduce of z [T, B, S/T, D]; with sequence parallelism a reduce-scatter
///         of it, and in backward an all-gather of dz. db needs no sum over ranks: whoever has
///         gathered dz has every token
/// Holds   h_t of own grains
/// Order   z: sum tree over grains. db: each token slice's sum, then the sum tree over slices,
///         whether the sequence is divided or not
/// Source  Shoeybi et al. 2019, arXiv:1909.08053, section 3; Korthikanti et al. 2022,
///         arXiv:2205.05198, section 4.2.1;  docs/concepts/tensor.md
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/parallel/tensor/grain_sum.h"

namespace lockstep::parallel {

/// [T, B, S/T, D], or this rank's slices with sequence parallelism.
///
/// inputs   one [T, B, S/T, F_t] for each grain of this rank; float32
/// weights  one (D, F_t) for each grain of this rank
/// bias     (D), alike on every rank, or undefined
at::Tensor row_linear(const TensorGroup& group, const std::vector<at::Tensor>& inputs,
                      const std::vector<at::Tensor>& weights, const at::Tensor& bias);

}  // namespace lockstep::parallel
