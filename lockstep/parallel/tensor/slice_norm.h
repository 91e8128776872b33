/// Layer norm and RMS norm over token slices: what a row needs is in the row, what gain and bias
/// need is summed over slices.
///
///   layer norm   y = (x - mean) / sqrt(var + eps) * gain + bias
///   RMS norm     y = x / sqrt(mean of x^2 + eps) * gain
///
/// Moves   backward, with sequence parallelism: one all-reduce of gain and bias gradients together
/// Holds   x, and mean and 1/sqrt(..) of each row
/// Order   gain and bias gradients: each token slice's sum, then the sum tree over slices, whether
///         the sequence is divided or not
/// Source  Ba et al. 2016, arXiv:1607.06450; Zhang and Sennrich 2019, arXiv:1910.07467; Korthikanti
///         et al. 2022, arXiv:2205.05198, section 4.2.2;  docs/concepts/sequence.md
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/parallel/tensor/grain_sum.h"

namespace lockstep::parallel {

/// x     [T, B, S/T, D] or this rank's slices; with one grain any [..., D]. float32
/// gain  (D), bias (D) or undefined; alike on every rank
at::Tensor layer_norm(const TensorGroup& group, const at::Tensor& x, const at::Tensor& gain,
                      const at::Tensor& bias, double eps);
at::Tensor rms_norm(const TensorGroup& group, const at::Tensor& x, const at::Tensor& gain,
                    double eps);

}  // namespace lockstep::parallel
