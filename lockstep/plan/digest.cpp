#include "lockstep/plan/digest.h"

#include <array>
#include <bit>
#include <charconv>
#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/str.h"

namespace lockstep::plan {
namespace {

/// Of values[i], the element start + i of its tensor. Whole numbers: the same on any machine.
inline __attribute__((always_inline)) Digest sum_of(uint64_t start, const float* values,
                                                    int64_t count) {
  // Local sums: the members alias nothing the compiler knows of, and would be stored each time.
  uint64_t low = 0;
  uint64_t high = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t place = base::mix64(start + static_cast<uint64_t>(i));
    const uint64_t a = base::mix64(place ^ std::bit_cast<uint32_t>(values[i]));
    low += a;
    high += base::mix64(a);
  }
  return {low, high};
}

using Sum = Digest (*)(uint64_t, const float*, int64_t);

Digest sum_anywhere(uint64_t start, const float* values, int64_t count) {
  return sum_of(start, values, count);
}

// Products of 64 bits, eight at a time, are in this instruction set only. (Chosen when it is first
// needed, not by target_clones: their resolvers run before a sanitizer is set up.)
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
__attribute__((target("arch=x86-64-v4"), optimize("O3"))) Digest sum_in_eights(uint64_t start,
                                                                               const float* values,
                                                                               int64_t count) {
  return sum_of(start, values, count);
}

Sum sum_of_this_machine() {
  return __builtin_cpu_supports("x86-64-v4") ? sum_in_eights : sum_anywhere;
}
#else
Sum sum_of_this_machine() { return sum_anywhere; }
#endif

}  // namespace

void Digest::add(std::string_view name, int64_t first, const float* values, int64_t count) {
  static const Sum sum = sum_of_this_machine();
  add(sum(base::fnv1a(name) + static_cast<uint64_t>(first), values, count));
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
