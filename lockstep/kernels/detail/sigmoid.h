/// 1 / (1 + e^-x) with its complement, neither of which cancels.
#pragma once

#include "lockstep/kernels/detail/exp.h"

namespace lockstep::kernels::detail {

struct Sigmoid {
  float value;
  float rest;  // 1 - value
};

[[gnu::always_inline]] inline Sigmoid sigmoid(float x) {
  const float e = exp(-x);
  const float value = 1.0f / (1.0f + e);
  // Near 1 the difference would keep no digit; near 0 the product would be infinity times 0.
  return {value, e < 1.0f ? e * value : 1.0f - value};
}

}  // namespace lockstep::kernels::detail
