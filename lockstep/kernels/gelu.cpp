#include "lockstep/kernels/gelu.h"

#include "lockstep/kernels/detail/clones.h"
#include "lockstep/kernels/detail/sigmoid.h"

namespace lockstep::kernels {
namespace {

constexpr float kLinear = 0x1.988454p+0f;  // 2 sqrt(2 / pi)
constexpr float kCubic = 0x1.2444f2p-4f;   // the same times 0.044715
constexpr float kSlope = 3 * kCubic;

}  // namespace

LOCKSTEP_CLONES
void gelu(float* __restrict y, const float* __restrict x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float z = x[i] * (kLinear + kCubic * (x[i] * x[i]));
    y[i] = x[i] * detail::sigmoid(z).value;
  }
}

LOCKSTEP_CLONES
void gelu_backward(float* __restrict dx, const float* __restrict dy, const float* __restrict x,
                   int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float square = x[i] * x[i];
    const detail::Sigmoid s = detail::sigmoid(x[i] * (kLinear + kCubic * square));
    const float bend = x[i] * (s.value * s.rest);
    dx[i] = dy[i] * (s.value + bend * (kLinear + kSlope * square));
  }
}

}  // namespace lockstep::kernels
