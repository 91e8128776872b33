#include "lockstep/net/reduce_kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tests/net/values.h"

namespace lockstep::net::testing {
namespace {

// Any number of terms and results, lengths around a vector and a tile, unaligned, in place.
TEST(ReduceKernels, FollowTheTreeForAnyShape) {
  for (const int terms : {1, 2, 3, 4, 5, 7, 8, 11}) {
    for (const int results : {1, 2, 3, 4, 6, 8}) {
      for (const int64_t count : {0, 1, 15, 16, 17, 511, 513, 1100}) {
        std::vector<std::vector<float>> memory(static_cast<size_t>(std::max(terms, results)),
                                               std::vector<float>(static_cast<size_t>(count) + 1));
        std::vector<plan::LeafRange> ranges;
        std::vector<const void*> sources;
        for (int t = 0; t < terms; ++t) {
          for (int64_t i = 0; i < count; ++i) memory[t][i + 1] = value<float>(count, t, i);
          ranges.push_back({t, t + 1});
          sources.push_back(memory[t].data() + 1);
        }
        std::vector<void*> outs;
        for (int r = 0; r < results; ++r) outs.push_back(memory[r].data() + 1);
        reduce(DType::f32, ReduceOp::sum, sources, plan::evaluation(terms, ranges), outs, count);
        for (int r = 0; r < results; ++r) {
          for (int64_t i = 0; i < count; ++i) {
            ASSERT_TRUE(
                same_bits(memory[r][i + 1], expected<float>(ReduceOp::sum, terms, count, i)))
                << terms << " terms, " << results << " results, element " << i << " of " << count;
          }
        }
      }
    }
  }
}

// Three terms have two trees: leaves 0 1 2 of 3, and 0, 2, 3 of 4.
TEST(ReduceKernels, ThreeTermsKeepTheirTree) {
  for (const auto& [leaves, ranges] : std::vector<std::pair<int, std::vector<plan::LeafRange>>>{
           {3, {{0, 1}, {1, 2}, {2, 3}}}, {4, {{0, 1}, {2, 3}, {3, 4}}}}) {
    const float x[3] = {1.0f, 0x1p-24f, 0x1p-24f};
    const void* terms[] = {&x[0], &x[1], &x[2]};
    float sum = 0;
    void* results[] = {&sum};
    reduce(DType::f32, ReduceOp::sum, terms, plan::evaluation(leaves, ranges), results, 1);
    EXPECT_EQ(sum, leaves == 3 ? 1.0f : 1.0f + 0x1p-23f);
  }
}

TEST(ReduceKernels, MinusZeroAloneStaysMinusZero) {
  const float x = -0.0f;
  const void* terms[] = {&x};
  float sum = 1;
  void* results[] = {&sum};
  reduce(DType::f32, ReduceOp::sum, terms, {}, results, 1);
  EXPECT_TRUE(std::signbit(sum));
}

TEST(ReduceKernels, HalfTypesAddInFloatAndRoundOnce) {
  const auto sum_of = [](auto type, std::vector<float> values) {
    using T = decltype(type);
    std::vector<T> x(values.size());
    std::vector<const void*> terms;
    std::vector<plan::LeafRange> ranges;
    for (size_t t = 0; t < values.size(); ++t) {
      narrow(values[t], x[t]);
      terms.push_back(&x[t]);
      ranges.push_back({static_cast<int>(t), static_cast<int>(t) + 1});
    }
    T sum;
    void* results[] = {&sum};
    reduce(Traits<T>::type, ReduceOp::sum, terms,
           plan::evaluation(static_cast<int>(values.size()), ranges), results, 1);
    return widen(sum);
  };
  EXPECT_EQ(sum_of(BFloat16{}, {256, 1, 1, 1}), 260);   // 259 rounds to 260; one by one it is 256
  EXPECT_EQ(sum_of(Float16{}, {2048, 1, 1, 1}), 2052);  // 2051 rounds to even
  EXPECT_EQ(sum_of(Float16{}, {40000, 40000}), std::numeric_limits<float>::infinity());
}

// Long enough for several tiles; three terms, so that dividing is not a shift of the exponent.
TEST(ReduceKernels, AnAverageIsTheSumDividedOnceBeforeRounding) {
  for (const int64_t count : {1, 511, 1300}) {
    std::vector<std::vector<float>> x(3, std::vector<float>(static_cast<size_t>(count)));
    std::vector<const void*> terms;
    for (int t = 0; t < 3; ++t) {
      for (int64_t i = 0; i < count; ++i) x[t][i] = value<float>(count, t, i);
      terms.push_back(x[t].data());
    }
    const auto additions =
        plan::evaluation(3, std::vector<plan::LeafRange>{{0, 1}, {1, 2}, {2, 3}});
    std::vector<float> mean(static_cast<size_t>(count));
    void* results[] = {mean.data()};
    reduce(DType::f32, ReduceOp::average, terms, additions, results, count);
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(mean[i], expected<float>(ReduceOp::sum, 3, count, i) / 3) << i;
    }
  }
  const double alone = 5;
  const void* terms[] = {&alone};
  double mean = 0;
  void* results[] = {&mean};
  reduce(DType::f64, ReduceOp::average, terms, {}, results, 1);
  EXPECT_EQ(mean, 5);
}

TEST(ReduceKernels, MaximumAndMinimumPassNanOn) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : {ReduceOp::max, ReduceOp::min}) {
    for (const bool first : {true, false}) {
      const float a = first ? nan : 1;
      const float b = first ? 1 : nan;
      const void* terms[] = {&a, &b};
      float out = 0;
      void* results[] = {&out};
      const plan::AddStep step{0, 1};
      reduce(DType::f32, op, terms, std::span(&step, 1), results, 1);
      EXPECT_TRUE(std::isnan(out));
    }
  }
}

TEST(HalfTypes, EveryFloat16ComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Float16 half{static_cast<uint16_t>(bits)};
    const float wide = widen(half);
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const int fraction = static_cast<int>(bits & 1023);
    if (exponent == 31 && fraction != 0) {
      ASSERT_TRUE(std::isnan(wide));
      continue;
    }
    const float magnitude = exponent == 31 ? std::numeric_limits<float>::infinity()
                            : exponent == 0
                                ? std::ldexp(static_cast<float>(fraction), -24)
                                : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
    ASSERT_TRUE(same_bits(wide, bits & 0x8000 ? -magnitude : magnitude)) << bits;
    Float16 back;
    narrow(wide, back);
    ASSERT_EQ(back.bits, bits);
  }
}

TEST(HalfTypes, RoundToNearestEven) {
  const auto half = [](float x) {
    Float16 out;
    narrow(x, out);
    return widen(out);
  };
  EXPECT_EQ(half(2049), 2048);
  EXPECT_EQ(half(2051), 2052);
  EXPECT_EQ(half(65519), 65504);
  EXPECT_TRUE(std::isinf(half(65520)));
  EXPECT_EQ(half(0x1p-25f), 0);
  EXPECT_EQ(half(0x1.8p-24f), 0x1p-23f);
  EXPECT_EQ(half(0x1.ff8p-15f), 0x1.ff8p-15f);  // the largest denormal
  EXPECT_EQ(half(0x1.ffcp-15f), 0x1p-14f);      // half way to the smallest normal: even
  BFloat16 brain;
  narrow(std::bit_cast<float>(0x7f800001u), brain);  // a nan whose payload is in the low bits
  EXPECT_TRUE(std::isnan(widen(brain)));
  narrow(257.0f, brain);
  EXPECT_EQ(widen(brain), 256);
}

}  // namespace
}  // namespace lockstep::net::testing
