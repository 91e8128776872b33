/// A linear map that is not divided, in the arithmetic of the run, whose weight gradients may be
/// left for later.
///
/// Holds   x as products take it (in bf16 half of its bytes), and with a queue also dy until the
///         queue is emptied
/// Order   with LibTorch's operators, output and gradients have the bits of at::linear and its
///         backward; else fused/product.h
/// Source  Qi et al. 2023, "Zero bubble pipeline parallelism", arXiv:2401.10241
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/parallel/tensor/grain_sum.h"

namespace lockstep::parallel {

/// x weight^T + bias; `bias` may be undefined.
///
/// x   [..., in], float32
at::Tensor linear(const TensorGroup& group, const at::Tensor& x, const at::Tensor& weight,
                  const at::Tensor& bias);

}  // namespace lockstep::parallel
