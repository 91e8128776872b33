/// fp16 and bf16 as bits, to fp32 and back, rounding to nearest even.
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep::base {

struct BFloat16 {
  uint16_t bits;
};

struct Float16 {
  uint16_t bits;
};

inline float widen(BFloat16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

inline float widen(Float16 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(value.bits & 0x7fffu) << 13;
  if (magnitude >= 0x0f800000u) {  // infinity or nan
    return std::bit_cast<float>(sign | magnitude | 0x7f800000u);
  }
  // Read as a float the exponent is 112 too small; multiplying by 2^112 is exact, denormals too.
  const float scaled = std::bit_cast<float>(magnitude) * std::bit_cast<float>(0x77800000u);
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(scaled));
}

inline void narrow(float value, BFloat16& out) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1u);
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  out.bits = static_cast<uint16_t>(nan ? (bits >> 16 | 0x40u) : rounded >> 16);
}

inline void narrow(float value, Float16& out) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u;
  } else if (magnitude >= 0x477ff000u) {  // 65520 and more round to infinity
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {
    // Below 2^-14: adding 0.5 leaves the value in units of 2^-24, rounded, in the low bits.
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    half = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  }
  out.bits = static_cast<uint16_t>(sign | half);
}

}  // namespace lockstep::base
