/// GELU, tanh form, as one pass each way.
///
/// Holds   x from forward to backward
/// Source  kernels/gelu.h;  docs/concepts/kernels.md
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::fused {

/// x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3); element by element, on a slice as on the
/// whole.
///
/// x       float32, any shape
/// throws  UsageError: another dtype
at::Tensor gelu(const at::Tensor& x);

}  // namespace lockstep::fused
