/// SwiGLU as one pass each way: no gate, up, or product of them beside the result.
///
/// Holds   gate_up from forward to backward
/// Source  kernels/swiglu.h;  docs/concepts/kernels.md
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::fused {

/// gate sigmoid(gate) up, [..., F] of gate_up [..., 2F] with rows [gate | up].
///
/// gate_up  float32
/// throws   UsageError: another dtype, an odd last size
at::Tensor swiglu(const at::Tensor& gate_up);

}  // namespace lockstep::fused
