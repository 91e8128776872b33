#include "lockstep/kernels/span.h"

#include <algorithm>
#include <bit>

#include "lockstep/kernels/detail/clones.h"

namespace lockstep::kernels {
namespace {

// Without a branch inside, so that it vectorises.
LOCKSTEP_CLONES
bool block_is_finite(const float* values, int64_t count) {
  constexpr uint32_t kExponent = 0x7f800000;  // all ones: infinite or not a number
  uint32_t found = 0;
  for (int64_t i = 0; i < count; ++i) {
    found |= (std::bit_cast<uint32_t>(values[i]) & kExponent) == kExponent ? 1u : 0u;
  }
  return found == 0;
}

}  // namespace

LOCKSTEP_CLONES
void add(float* __restrict into, const float* __restrict from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) into[i] += from[i];
}

bool all_finite(const float* values, int64_t count) {
  constexpr int64_t kBlock = 4096;  // so that a bad gradient is told early
  for (int64_t first = 0; first < count; first += kBlock) {
    if (!block_is_finite(values + first, std::min(kBlock, count - first))) return false;
  }
  return true;
}

LOCKSTEP_CLONES void scale_in_place(float* values, int64_t count, float factor) {
  for (int64_t i = 0; i < count; ++i) values[i] *= factor;
}

LOCKSTEP_CLONES void scale_rows(float* __restrict values, const float* __restrict factors,
                                int64_t rows, int64_t width) {
  for (int64_t i = 0; i < rows; ++i) {
    float* __restrict row = values + i * width;
    const float factor = factors[i];
    for (int64_t j = 0; j < width; ++j) row[j] *= factor;
  }
}

}  // namespace lockstep::kernels
