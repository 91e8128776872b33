/// The sizes in which blocks are kept: eight to each doubling, so that at most an eighth is unused
/// and nearly equal tensors share blocks.
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep::memory::detail {

inline constexpr int kStepBits = 3;      // eight sizes to a doubling
inline constexpr int kSmallestBits = 7;  // class 0 has 128 bytes
inline constexpr int kClasses = (48 - kSmallestBits) << kStepBits;

/// 128, 144, 160, ..., 240, 256, 288, ...
constexpr int64_t class_bytes(int size_class) {
  const int doubling = size_class >> kStepBits;
  const int64_t step = size_class & ((1 << kStepBits) - 1);
  return ((int64_t{1} << kStepBits) + step) << (kSmallestBits - kStepBits + doubling);
}

/// The smallest class with at least `bytes`.
constexpr int class_of(int64_t bytes) {
  if (bytes <= class_bytes(0)) return 0;
  const auto last = static_cast<uint64_t>(bytes - 1);
  const int shift = std::bit_width(last) - 1 - kStepBits;
  // `last >> shift` is in [8, 16): the class that holds `last`, and the next has `bytes`.
  return ((shift - (kSmallestBits - kStepBits)) << kStepBits) + static_cast<int>(last >> shift) -
         (1 << kStepBits) + 1;
}

}  // namespace lockstep::memory::detail
