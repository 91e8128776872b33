#include "lockstep/kernels/lamb.h"

#include <cmath>

#include "lockstep/kernels/detail/clones.h"
#include "lockstep/kernels/detail/power.h"

namespace lockstep::kernels {
namespace {

// Inside each clone, so that it is compiled for its instructions.
[[gnu::always_inline]] inline float direction(float master, float m, float v,
                                              const LambScalars& s) {
  return m * s.first_scale / (std::sqrt(v) * s.root_scale + s.eps) + s.decay * master;
}

}  // namespace

LambScalars lamb_scalars(int64_t t, double beta1, double beta2, double eps, double weight_decay,
                         bool bias_correction, double grad_scale) {
  const auto correction = [&](double beta) {
    return bias_correction ? 1 - detail::power(beta, t) : 1.0;
  };
  return {
      .beta1 = static_cast<float>(beta1),
      .one_minus_beta1 = static_cast<float>(1 - beta1),
      .beta2 = static_cast<float>(beta2),
      .one_minus_beta2 = static_cast<float>(1 - beta2),
      .first_scale = static_cast<float>(1 / correction(beta1)),
      .root_scale = static_cast<float>(1 / std::sqrt(correction(beta2))),
      .eps = static_cast<float>(eps),
      .decay = static_cast<float>(weight_decay),
      .grad_scale = static_cast<float>(grad_scale),
  };
}

LOCKSTEP_CLONES
void lamb_moments(float* __restrict first_moment, float* __restrict second_moment,
                  const float* __restrict gradient, int64_t count, const LambScalars& scalars) {
  const LambScalars s = scalars;
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * s.grad_scale;
    first_moment[i] = s.beta1 * first_moment[i] + s.one_minus_beta1 * g;
    second_moment[i] = s.beta2 * second_moment[i] + s.one_minus_beta2 * g * g;
  }
}

LOCKSTEP_CLONES
void lamb_direction(float* __restrict into, const float* __restrict master,
                    const float* __restrict first_moment, const float* __restrict second_moment,
                    int64_t count, const LambScalars& scalars) {
  const LambScalars s = scalars;
  for (int64_t i = 0; i < count; ++i) {
    into[i] = direction(master[i], first_moment[i], second_moment[i], s);
  }
}

LOCKSTEP_CLONES
void lamb_apply(float* __restrict master, const float* __restrict first_moment,
                const float* __restrict second_moment, int64_t count, const LambScalars& scalars,
                float step_size) {
  const LambScalars s = scalars;
  for (int64_t i = 0; i < count; ++i) {
    master[i] = master[i] - step_size * direction(master[i], first_moment[i], second_moment[i], s);
  }
}

}  // namespace lockstep::kernels
