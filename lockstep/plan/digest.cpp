#include "lockstep/plan/digest.h"

#include <array>
#include <bit>
#include <charconv>
#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/str.h"

namespace lockstep::plan {

void Digest::add(std::string_view name, int64_t first, const float* values, int64_t count) {
  const uint64_t start = base::fnv1a(name) + static_cast<uint64_t>(first);
  // Local sums: the members alias nothing the compiler knows of, and would be stored each time.
  uint64_t sum_low = 0;
  uint64_t sum_high = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t place = base::mix64(start + static_cast<uint64_t>(i));
    const uint64_t a = base::mix64(place ^ std::bit_cast<uint32_t>(values[i]));
    sum_low += a;
    sum_high += base::mix64(a);
  }
  low += sum_low;
  high += sum_high;
}

void Digest::add(const Digest& other) {
  low += other.low;
  high += other.high;
}

std::string Digest::text() const {
  std::array<char, 33> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx%016llx",
                static_cast<unsigned long long>(high), static_cast<unsigned long long>(low));
  return digits.data();
}

Digest parse_digest(std::string_view text) {
  Digest digest;
  const auto reads = [](std::string_view half, uint64_t& into) {
    const auto [end, error] = std::from_chars(half.data(), half.data() + half.size(), into, 16);
    return error == std::errc{} && end == half.data() + half.size();
  };
  if (text.size() != 32 || !reads(text.substr(0, 16), digest.high) ||
      !reads(text.substr(16), digest.low)) {
    throw UsageError(base::str("\"", text, "\" is no digest: 32 hex digits are."));
  }
  return digest;
}

}  // namespace lockstep::plan
