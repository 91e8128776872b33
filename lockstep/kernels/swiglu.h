/// SwiGLU: the up half of a row, scaled by the SiLU of its gate half.
/// Source  Shazeer 2020, arXiv:2002.05202;  docs/concepts/kernels.md
#pragma once

#include <cstdint>

namespace lockstep::kernels {

/// A row of `gate_up` is [gate | up], 2 `width` long; a row of `y` is `width` long. Per element,
/// each operation rounded to fp32, e^x by detail/exp.h:
///
///   y = gate sigmoid(gate) up
///
/// Spans of this file do not overlap.
void swiglu(float* y, const float* gate_up, int64_t rows, int64_t width);

///   d_gate = dy up (s + gate s (1 - s)),  d_up = dy gate s,  s = sigmoid(gate)
///
/// `d_gate_up` has the rows of `gate_up`.
void swiglu_backward(float* d_gate_up, const float* dy, const float* gate_up, int64_t rows,
                     int64_t width);

}  // namespace lockstep::kernels
