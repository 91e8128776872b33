#include "lockstep/kernels/momentum.h"

#include "lockstep/kernels/detail/clones.h"

namespace lockstep::kernels {

LOCKSTEP_CLONES
void sgd(float* __restrict master, float* __restrict moment, const float* __restrict gradient,
         int64_t count, const MomentumScalars& scalars) {
  const MomentumScalars s = scalars;
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * s.grad_scale + s.decay * master[i];
    const float m = s.momentum * moment[i] + g;
    moment[i] = m;
    master[i] = master[i] - s.step_size * m;
  }
}

LOCKSTEP_CLONES
void lars(float* __restrict master, float* __restrict moment, const float* __restrict gradient,
          int64_t count, const MomentumScalars& scalars) {
  const MomentumScalars s = scalars;
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * s.grad_scale + s.decay * master[i];
    const float m = s.momentum * moment[i] + s.step_size * g;
    moment[i] = m;
    master[i] = master[i] - m;
  }
}

LOCKSTEP_CLONES
void scale(float* __restrict into, const float* __restrict gradient, int64_t count,
           float grad_scale) {
  for (int64_t i = 0; i < count; ++i) into[i] = gradient[i] * grad_scale;
}

}  // namespace lockstep::kernels
