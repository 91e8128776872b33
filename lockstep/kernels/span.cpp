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

}  // namespace lockstep::kernels
