/// Spans of numbers for the tests of kernels.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "lockstep/base/counter_random.h"

namespace lockstep::kernels {

constexpr int64_t kLongest = 70;

/// Up to `largest` in size, of both signs, some exactly zero.
inline std::vector<float> span_of(uint64_t seed, int64_t count, double largest = 1) {
  const base::RandomKey key(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const auto counter = static_cast<uint64_t>(i);
    values[static_cast<size_t>(i)] = static_cast<float>((2 * key.uniform(counter) - 1) * largest);
    if (i % 17 == 5) values[static_cast<size_t>(i)] = i % 2 == 0 ? 0.0f : -0.0f;
  }
  return values;
}

inline void expect_same_bits(const std::vector<float>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(expected[i]))
        << "element " << i << ": " << got[i] << " instead of " << expected[i];
  }
}

}  // namespace lockstep::kernels
