/// e^x of one float, without a branch or a call: loops around it vectorise, and a number has the
/// same result in a vector body, in a tail and alone.
///
/// Error   at most 2 units in the last place over all floats, denormal results included; exact at 0
///         test: Exp.OfEveryKindOfFloat
/// Edges   -inf -> 0, +inf and above 88.72 -> inf, not a number -> not a number
///
///   n = x / ln 2 rounded to the nearest;  r = x - n ln 2, |r| <= ln 2 / 2
///   e^x = 2^n (1 + r + r^2 q(r)),  q of degree 4: the minimax polynomial, relative error 2^-28
///
/// Source  Cody and Waite 1980, "Software manual for the elementary functions": ln 2 in two parts
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep::kernels::detail {

[[gnu::always_inline]] inline float exp(float x) {
  constexpr float kInverseLn2 = 0x1.715476p+0f;
  constexpr float kLn2High = 0x1.62e4p-1f;  // 15 bits: times n it is exact
  constexpr float kLn2Low = 0x1.7f7d1cp-20f;
  constexpr float kRound = 0x1.8p+23f;  // a sum with it has no bits below one
  // Below, even the smallest denormal is not reached. Computed as if x were 0 and then dropped:
  // products that underflow are slow on some processors, and masked scores are many.
  const bool vanishes = x < -104.0f;
  x = vanishes ? 0.0f : x;
  x = x > 89.0f ? 89.0f : x;
  const float shifted = x * kInverseLn2 + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float q = 0x1.6a23cap-10f;
  q = q * r + 0x1.123a2p-7f;
  q = q * r + 0x1.5558f2p-5f;
  q = q * r + 0x1.555492p-3f;
  q = q * r + 0x1.fffffcp-2f;
  const float p = 1.0f + (r + r * r * q);
  // 2^n alone may lie outside the exponents of a float; its two halves do not.
  const auto exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);
  const int32_t first = exponent >> 1;
  const int32_t second = exponent - first;
  const float scaled = p * std::bit_cast<float>((first + 127) << 23);
  const float result = scaled * std::bit_cast<float>((second + 127) << 23);
  return vanishes ? 0.0f : result;
}

}  // namespace lockstep::kernels::detail
