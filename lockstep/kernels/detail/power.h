/// Powers of the decay rates of moments, which bias corrections divide by.
#pragma once

#include <cstdint>

namespace lockstep::kernels::detail {

/// By squaring, because pow() rounds differently from one C library and CPU to the next.
inline double power(double base, int64_t exponent) {
  double result = 1;
  for (double square = base; exponent > 0; exponent >>= 1, square *= square) {
    if (exponent & 1) result *= square;
  }
  return result;
}

}  // namespace lockstep::kernels::detail
