/// Random numbers that are a function of what they are for, not of who draws them or when.
///
/// A key names the draw (seed, step, sample, layer, purpose); a counter is the element's index in
/// the logical tensor. No cut of the work over ranks changes a draw.
/// Source  Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3" (the idea);
///         docs/concepts/same_bits.md
#pragma once

#include <cstdint>
#include <string_view>

#include "lockstep/base/hash.h"

namespace lockstep::base {

class RandomKey {
 public:
  explicit constexpr RandomKey(uint64_t seed) : value_(mix64(seed)) {}

  /// The key of a narrower purpose: `key.with("dropout").with(step)`.
  constexpr RandomKey with(uint64_t part) const {
    return RandomKey(value_ ^ mix64(part + 1), Raw{});
  }
  constexpr RandomKey with(std::string_view part) const { return with(fnv1a(part)); }

  /// 64 random bits for `counter`.
  constexpr uint64_t bits(uint64_t counter) const { return mix64(value_ + counter); }

  /// Uniform in (0, 1), 53 bits, never 0 or 1.
  double uniform(uint64_t counter) const {
    return (static_cast<double>(bits(counter) >> 12) + 0.5) * 0x1p-52;
  }

  /// Standard normal, by inversion of `uniform(counter)`. Made of operations that are exactly
  /// rounded everywhere, so unlike machines draw alike.
  double normal(uint64_t counter) const;

  /// A uniform integer in [0, bound).
  uint64_t below(uint64_t counter, uint64_t bound) const {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(bits(counter)) * bound) >> 64);
  }

 private:
  struct Raw {};
  constexpr RandomKey(uint64_t value, Raw) : value_(mix64(value)) {}

  uint64_t value_;
};

}  // namespace lockstep::base
