/// GELU in its tanh form, written with the sigmoid: 0.5 (1 + tanh u) = sigmoid(2 u).
/// Source  Hendrycks and Gimpel 2016, arXiv:1606.08415, section 2;  docs/concepts/kernels.md
#pragma once

#include <cstdint>

namespace lockstep::kernels {

/// Per element, each operation rounded to fp32, e^x by detail/exp.h:
///
///   z = x (2 c + 2 c 0.044715 x x),  c = sqrt(2 / pi)
///   y = x sigmoid(z)
///
/// Spans of this file do not overlap.
void gelu(float* y, const float* x, int64_t count);

///   dx = dy (s + x s (1 - s) z'),  s = sigmoid(z),  z' = 2 c + 6 c 0.044715 x x
void gelu_backward(float* dx, const float* dy, const float* x, int64_t count);

}  // namespace lockstep::kernels
