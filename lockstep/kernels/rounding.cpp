#include "lockstep/kernels/rounding.h"

#include <bit>

#include "lockstep/kernels/detail/clones.h"

namespace lockstep::kernels {
namespace {

constexpr uint32_t kSign = 0x8000'0000;
constexpr uint32_t kInfinity = 0x7f80'0000;

[[gnu::always_inline]] inline uint16_t bf16_of(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  // Rounding could carry a NaN's digits away: a quiet one takes its place.
  const uint32_t quiet = (bits >> 16) | 0x40;
  return static_cast<uint16_t>((bits & ~kSign) > kInfinity ? quiet : rounded);
}

[[gnu::always_inline]] inline float fp16_of(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits & kSign;
  const uint32_t size = bits ^ sign;
  const float magnitude = std::bit_cast<float>(size);
  // Ten digits behind the first.
  uint32_t rounded = (size + 0xfff + ((size >> 13) & 1)) & ~uint32_t{0x1fff};
  rounded = rounded >= 0x4780'0000 ? kInfinity : rounded;  // 65536
  // Below 2^-14 the step is 2^-24: that of floats from a half to one.
  const float small = (magnitude + 0.5F) - 0.5F;
  rounded = magnitude < 0x1p-14F ? std::bit_cast<uint32_t>(small) : rounded;
  rounded = size > kInfinity ? size : rounded;
  return std::bit_cast<float>(rounded | sign);
}

}  // namespace

LOCKSTEP_CLONES void to_bf16(uint16_t* __restrict into, const float* __restrict from,
                             int64_t count) {
  for (int64_t i = 0; i < count; ++i) into[i] = bf16_of(from[i]);
}

LOCKSTEP_CLONES void round_to_fp16(float* into, const float* from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) into[i] = fp16_of(from[i]);
}

}  // namespace lockstep::kernels
