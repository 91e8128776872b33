#include "lockstep/kernels/swiglu.h"

#include "lockstep/kernels/detail/clones.h"
#include "lockstep/kernels/detail/sigmoid.h"

namespace lockstep::kernels {
namespace {

LOCKSTEP_CLONES
void row_forward(float* __restrict y, const float* __restrict gate, const float* __restrict up,
                 int64_t width) {
  for (int64_t i = 0; i < width; ++i) {
    y[i] = gate[i] * detail::sigmoid(gate[i]).value * up[i];
  }
}

LOCKSTEP_CLONES
void row_backward(float* __restrict d_gate, float* __restrict d_up, const float* __restrict dy,
                  const float* __restrict gate, const float* __restrict up, int64_t width) {
  for (int64_t i = 0; i < width; ++i) {
    const detail::Sigmoid s = detail::sigmoid(gate[i]);
    const float swish = gate[i] * s.value;
    d_gate[i] = dy[i] * up[i] * (s.value + swish * s.rest);
    d_up[i] = dy[i] * swish;
  }
}

}  // namespace

void swiglu(float* y, const float* gate_up, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* const gate = gate_up + row * 2 * width;
    row_forward(y + row * width, gate, gate + width, width);
  }
}

void swiglu_backward(float* d_gate_up, const float* dy, const float* gate_up, int64_t rows,
                     int64_t width) {
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t first = row * 2 * width;
    row_backward(d_gate_up + first, d_gate_up + first + width, dy + row * width, gate_up + first,
                 gate_up + first + width, width);
  }
}

}  // namespace lockstep::kernels
