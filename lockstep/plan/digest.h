/// A digest of parameters that no cut and no order can change: 128 bits, a sum over elements.
///
///   x = mix64(fnv1a(name) + index),  a = mix64(x ^ bits),  c = mix64(a)
///   low = sum of a, high = sum of c, both modulo 2^64
///
/// `index` is the element's index in the logical tensor, `bits` the bits of the fp32 master.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::plan {

struct Digest {
  uint64_t low = 0;
  uint64_t high = 0;

  /// Adds elements first, first + 1, ... of the tensor `name`.
  void add(std::string_view name, int64_t first, const float* values, int64_t count);
  void add(const Digest& other);

  /// 32 hex digits, high part first.
  std::string text() const;
  bool operator==(const Digest&) const = default;
};

/// Reads what `text` wrote. Throws UsageError for anything else.
Digest parse_digest(std::string_view text);

}  // namespace lockstep::plan
