#include "lockstep/kernels/dropout_mask.h"

#include <algorithm>
#include <cmath>

#include "lockstep/kernels/detail/clones.h"

namespace lockstep::kernels {
namespace {

constexpr int64_t kBlock = 256;  // a fixed length, so that the loop vectorises

LOCKSTEP_CLONES
void fill_block(float* mask, base::RandomKey key, uint64_t first, uint64_t dropped_below,
                float kept) {
  for (int64_t i = 0; i < kBlock; ++i) {
    mask[i] = key.bits(first + static_cast<uint64_t>(i)) < dropped_below ? 0.0f : kept;
  }
}

}  // namespace

void dropout_mask(float* mask, int64_t first, int64_t count, base::RandomKey key, double p) {
  const auto dropped_below = static_cast<uint64_t>(std::ldexp(p, 64));
  const auto kept = static_cast<float>(1 / (1 - p));
  for (int64_t i = 0; i < count; i += kBlock) {
    const int64_t length = std::min(kBlock, count - i);
    const auto counter = static_cast<uint64_t>(first + i);
    if (length == kBlock) {
      fill_block(mask + i, key, counter, dropped_below, kept);
    } else {
      float last[kBlock];
      fill_block(last, key, counter, dropped_below, kept);
      std::copy_n(last, length, mask + i);
    }
  }
}

}  // namespace lockstep::kernels
