// Every kernel against plain code that is compiled for no particular instruction set: equal bits at
// each length and offset say that vector bodies, tails and clones are one function.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "lockstep/base/counter_random.h"
#include "lockstep/kernels/adamw.h"
#include "lockstep/kernels/dropout_mask.h"
#include "lockstep/kernels/norm.h"
#include "lockstep/kernels/span.h"

namespace lockstep::kernels {
namespace {

constexpr int64_t kLongest = 70;
constexpr int64_t kOffsets[] = {0, 1, 3, 7, 13};

// Of many magnitudes and both signs, some exactly zero.
std::vector<float> numbers(uint64_t seed, int64_t count) {
  const base::RandomKey key(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const double size = std::ldexp(key.uniform(2 * i), static_cast<int>(key.below(2 * i, 40)) - 30);
    values[i] = static_cast<float>((key.bits(2 * i + 1) & 1) != 0 ? size : -size);
    if (i % 17 == 5) values[i] = i % 2 == 0 ? 0.0f : -0.0f;
  }
  return values;
}

template <class T>
void expect_same_bits(const std::vector<T>& got, const std::vector<T>& expected) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::bit_cast<Bits>(got[i]), std::bit_cast<Bits>(expected[i]))
        << "element " << i << ": " << got[i] << " instead of " << expected[i];
  }
}

TEST(Add, SameBitsAtEachLengthAndOffset) {
  for (const int64_t offset : kOffsets) {
    for (int64_t count = 0; count <= kLongest; ++count) {
      std::vector<float> into = numbers(1, offset + kLongest + 1);
      const std::vector<float> from = numbers(2, 2 * offset + kLongest + 1);
      std::vector<float> expected = into;
      for (int64_t i = 0; i < count; ++i) expected[offset + i] += from[2 * offset + i];
      add(into.data() + offset, from.data() + 2 * offset, count);
      expect_same_bits(into, expected);  // beyond `count` too
    }
  }
}

TEST(AllFinite, FindsOneBadElementAnywhere) {
  const float bad[] = {std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity(),
                       std::numeric_limits<float>::quiet_NaN()};
  for (int64_t count = 0; count <= kLongest; ++count) {
    std::vector<float> values(static_cast<size_t>(count) + 1, std::numeric_limits<float>::max());
    values.back() = bad[0];  // one past the end: not looked at
    EXPECT_TRUE(all_finite(values.data(), count));
    for (int64_t i = 0; i < count; ++i) {
      const float kept = values[i];
      values[i] = bad[i % 3];
      EXPECT_FALSE(all_finite(values.data(), count)) << i << " of " << count;
      values[i] = kept;
    }
  }
  std::vector<float> longer(3 * 4096 + 5, -1.0f);
  EXPECT_TRUE(all_finite(longer.data(), static_cast<int64_t>(longer.size())));
  longer.back() = bad[2];
  EXPECT_FALSE(all_finite(longer.data(), static_cast<int64_t>(longer.size())));
}

// As norm.h says it: 16 lanes, then halves.
double square_sum_of_chunk(const float* values, int64_t count) {
  double lane[16] = {};
  for (int64_t i = 0; i < count; ++i) {
    lane[i % 16] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  for (int half = 8; half >= 1; half /= 2) {
    for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
  }
  return lane[0];
}

TEST(ChunkSquareSums, SameBitsAtEachLengthAndOffset) {
  std::vector<int64_t> counts = {255, 256, 257, 511, 512, 513, 1000};
  for (int64_t count = 0; count <= kLongest; ++count) counts.push_back(count);
  for (const int64_t offset : kOffsets) {
    for (const int64_t count : counts) {
      const std::vector<float> values = numbers(3, offset + count);
      std::vector<double> expected;
      for (int64_t first = 0; first < count; first += 256) {
        expected.push_back(square_sum_of_chunk(values.data() + offset + first,
                                               std::min<int64_t>(256, count - first)));
      }
      std::vector<double> sums(expected.size() + 1, -7.0);
      chunk_square_sums(values.data() + offset, count, sums.data());
      EXPECT_EQ(sums.back(), -7.0) << "one sum too many";
      sums.pop_back();
      expect_same_bits(sums, expected);
    }
  }
}

TEST(ChunkSquareSums, HoldsTheLargestFloats) {
  const std::vector<float> values(256, std::numeric_limits<float>::max());
  double sum = 0;
  chunk_square_sums(values.data(), 256, &sum);
  const double largest = std::numeric_limits<float>::max();
  EXPECT_EQ(sum, 256 * (largest * largest));
}

struct AdamWState {
  std::vector<float> master, first, second;
};

void adamw_by_element(AdamWState& state, const std::vector<float>& gradient, int64_t offset,
                      int64_t count, const AdamWScalars& s) {
  for (int64_t i = offset; i < offset + count; ++i) {
    const float g = gradient[i] * s.grad_scale;
    const float kept_first = s.beta1 * state.first[i];
    const float new_first = s.one_minus_beta1 * g;
    state.first[i] = kept_first + new_first;
    const float kept_second = s.beta2 * state.second[i];
    const float scaled = s.one_minus_beta2 * g;
    const float new_second = scaled * g;
    state.second[i] = kept_second + new_second;
    const float root = std::sqrt(state.second[i]);
    const float scaled_root = root * s.root_scale;
    const float divisor = scaled_root + s.eps;
    const float step = s.step_size * state.first[i];
    const float change = step / divisor;
    const float kept = state.master[i] * s.keep;
    state.master[i] = kept - change;
  }
}

TEST(AdamW, SameBitsAtEachLengthAndOffset) {
  for (const int64_t offset : kOffsets) {
    for (int64_t count = 0; count <= kLongest; ++count) {
      const int64_t size = offset + kLongest + 1;
      AdamWState state{numbers(4, size), std::vector<float>(size), std::vector<float>(size)};
      AdamWState expected = state;
      for (int64_t t = 1; t <= 3; ++t) {
        const std::vector<float> gradient = numbers(10 + static_cast<uint64_t>(t), size);
        const AdamWScalars scalars = adamw_scalars(t, 3e-3, 0.9, 0.95, 1e-8, 0.1, 0.7);
        adamw(state.master.data() + offset, state.first.data() + offset,
              state.second.data() + offset, gradient.data() + offset, count, scalars);
        adamw_by_element(expected, gradient, offset, count, scalars);
      }
      expect_same_bits(state.master, expected.master);
      expect_same_bits(state.first, expected.first);
      expect_same_bits(state.second, expected.second);
    }
  }
}

TEST(AdamW, ScalarsFollowTheEquations) {
  for (const int64_t t : {1, 2, 3, 10, 1000, 1000000}) {
    const AdamWScalars s = adamw_scalars(t, 1e-3, 0.9, 0.999, 1e-8, 0.1, 0.25);
    EXPECT_EQ(s.keep, static_cast<float>(1 - 1e-4));
    EXPECT_EQ(s.one_minus_beta1, static_cast<float>(1 - 0.9));
    EXPECT_EQ(s.grad_scale, 0.25f);
    const double steps = static_cast<double>(t);
    EXPECT_FLOAT_EQ(s.step_size, static_cast<float>(1e-3 / (1 - std::pow(0.9, steps))));
    EXPECT_FLOAT_EQ(s.root_scale, static_cast<float>(1 / std::sqrt(1 - std::pow(0.999, steps))));
  }
}

TEST(DropoutMask, SameBitsAtEachLengthAndFromEachElementOn) {
  const base::RandomKey key = base::RandomKey(5).with("mask");
  std::vector<int64_t> counts = {255, 256, 257, 1000};
  for (int64_t count = 0; count <= kLongest; ++count) counts.push_back(count);
  for (const int64_t count : counts) {
    for (const int64_t first : {0, 1, 1000}) {
      std::vector<float> expected(static_cast<size_t>(count), 1 / 0.75f);
      for (int64_t i = 0; i < count; ++i) {
        if (key.bits(static_cast<uint64_t>(first + i)) < uint64_t{1} << 62) expected[i] = 0.0f;
      }
      std::vector<float> mask(static_cast<size_t>(count) + 1, -7.0f);
      dropout_mask(mask.data(), first, count, key, 0.25);
      EXPECT_EQ(mask.back(), -7.0f) << "one factor too many";
      mask.pop_back();
      expect_same_bits(mask, expected);
    }
  }
}

TEST(DropoutMask, DropsTheShareAskedFor) {
  constexpr int64_t kCount = 100000;
  for (const double p : {0.0, 0.1, 0.5, 0.9}) {
    std::vector<float> mask(kCount);
    dropout_mask(mask.data(), 0, kCount, base::RandomKey(6), p);
    int64_t dropped = 0;
    for (const float factor : mask) {
      dropped += factor == 0 ? 1 : 0;
      if (factor != 0) {
        ASSERT_EQ(factor, static_cast<float>(1 / (1 - p)));
      }
    }
    // Five standard deviations of a binomial count.
    EXPECT_NEAR(static_cast<double>(dropped), p * kCount, 5 * std::sqrt(kCount * p * (1 - p)));
  }
}

}  // namespace
}  // namespace lockstep::kernels
