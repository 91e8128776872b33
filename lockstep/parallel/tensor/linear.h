/// A linear map that is not divided, whose weight gradients may be left for later.
///
/// Holds   x, and with a queue also dy until the queue is emptied
/// Order   output and gradients have the bits of at::linear and its backward
/// Source  Qi et al. 2023, "Zero bubble pipeline parallelism", arXiv:2401.10241
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/parallel/tensor/grain_sum.h"

namespace lockstep::parallel {

/// x weight^T + bias; `bias` may be undefined. Without a queue it is at::linear.
///
/// x   [..., in], contiguous, float32
at::Tensor linear(const TensorGroup& group, const at::Tensor& x, const at::Tensor& weight,
                  const at::Tensor& bias);

}  // namespace lockstep::parallel
