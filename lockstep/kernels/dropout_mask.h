/// The factors that dropout multiplies with, drawn from a counter.
#pragma once

#include <cstdint>

#include "lockstep/base/counter_random.h"

namespace lockstep::kernels {

/// mask[i] = 0 if key.bits(first + i) < p * 2^64, else 1 / (1 - p). `p` in [0, 1).
void dropout_mask(float* mask, int64_t first, int64_t count, base::RandomKey key, double p);

}  // namespace lockstep::kernels
