#include "lockstep/kernels/adamw.h"

#include <cmath>

#include "lockstep/kernels/detail/clones.h"
#include "lockstep/kernels/detail/power.h"

namespace lockstep::kernels {

using detail::power;

AdamWScalars adamw_scalars(int64_t t, double lr, double beta1, double beta2, double eps,
                           double weight_decay, double grad_scale) {
  return {
      .keep = static_cast<float>(1 - lr * weight_decay),
      .beta1 = static_cast<float>(beta1),
      .one_minus_beta1 = static_cast<float>(1 - beta1),
      .beta2 = static_cast<float>(beta2),
      .one_minus_beta2 = static_cast<float>(1 - beta2),
      .step_size = static_cast<float>(lr / (1 - power(beta1, t))),
      .root_scale = static_cast<float>(1 / std::sqrt(1 - power(beta2, t))),
      .eps = static_cast<float>(eps),
      .grad_scale = static_cast<float>(grad_scale),
  };
}

LOCKSTEP_CLONES
void adamw(float* __restrict master, float* __restrict first_moment,
           float* __restrict second_moment, const float* __restrict gradient, int64_t count,
           const AdamWScalars& scalars) {
  const AdamWScalars s = scalars;
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * s.grad_scale;
    const float m = s.beta1 * first_moment[i] + s.one_minus_beta1 * g;
    const float v = s.beta2 * second_moment[i] + s.one_minus_beta2 * g * g;
    const float divisor = std::sqrt(v) * s.root_scale + s.eps;
    first_moment[i] = m;
    second_moment[i] = v;
    master[i] = master[i] * s.keep - s.step_size * m / divisor;
  }
}

}  // namespace lockstep::kernels
