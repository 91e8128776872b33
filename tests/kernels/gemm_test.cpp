// Matrix products against float64, within the bound of a sum of rounded products.
#include "lockstep/kernels/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "lockstep/kernels/rounding.h"
#include "tests/kernels/spans.h"

namespace lockstep::kernels {
namespace {

/// A matrix in rows of `stride`, NaN between them: what is read beyond a row shows.
struct Matrix {
  Matrix(uint64_t seed, int64_t rows, int64_t columns, int64_t gap, OperandType type)
      : stride(columns + gap), values(static_cast<size_t>(rows * stride), NAN) {
    const base::RandomKey key(seed);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        at(i, j) = static_cast<float>(key.normal(static_cast<uint64_t>(i * columns + j)));
      }
    }
    rounded.resize(values.size());
    to_bf16(rounded.data(), values.data(), static_cast<int64_t>(values.size()));
    if (type == OperandType::fp32) return;
    for (size_t i = 0; i < values.size(); ++i) {
      const uint32_t bits = uint32_t{rounded[i]} << 16;
      std::memcpy(&values[i], &bits, 4);
    }
  }
  float& at(int64_t i, int64_t j) { return values[static_cast<size_t>(i * stride + j)]; }
  const void* data(OperandType type) const {
    return type == OperandType::fp32 ? static_cast<const void*>(values.data())
                                     : static_cast<const void*>(rounded.data());
  }
  int64_t stride;
  std::vector<float> values;
  std::vector<uint16_t> rounded;
};

struct Size {
  int64_t m, n, k;
};

class GemmOf : public ::testing::TestWithParam<OperandType> {};

TEST_P(GemmOf, IsTheProduct) {
  const OperandType type = GetParam();
  if (type == OperandType::bf16 && !has_bf16_products()) GTEST_SKIP() << "no bf16 products here";
  for (const auto& [m, n, k] : {Size{1, 1, 1}, {5, 7, 3}, {64, 33, 129}, {17, 70, 0}, {0, 4, 3}}) {
    for (int form = 0; form < 16; ++form) {
      const bool ta = form & 1, tb = form & 2, adds = form & 4, biased = form & 8;
      SCOPED_TRACE(::testing::Message() << m << "x" << n << "x" << k << " form " << form);
      Matrix left(1, ta ? k : m, ta ? m : k, 3, type), right(2, tb ? n : k, tb ? k : n, 5, type);
      Matrix into(3, m, n, 2, OperandType::fp32), bias(4, 1, n, 0, OperandType::fp32);
      Matrix before = into;
      gemm({.type = type,
            .m = m,
            .n = n,
            .k = k,
            .transpose_left = ta,
            .transpose_right = tb,
            .left_stride = left.stride,
            .right_stride = right.stride,
            .into_stride = into.stride,
            .adds = adds},
           left.data(type), right.data(type), into.values.data(),
           biased ? bias.values.data() : nullptr);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          double exact = 0, size = 0;
          const auto add = [&](double term) {
            exact += term;
            size += std::abs(term);
          };
          for (int64_t l = 0; l < k; ++l) {
            add(double{ta ? left.at(l, i) : left.at(i, l)} *
                (tb ? right.at(j, l) : right.at(l, j)));
          }
          if (adds) add(before.at(i, j));
          if (biased) add(bias.at(0, j));
          // Each product rounds once (in bf16 not at all), and each of k + 1 additions.
          EXPECT_LE(std::abs(into.at(i, j) - exact), size * static_cast<double>(k + 3) * 0x1p-24);
        }
        // What lies between the rows is as it was.
        for (int64_t j = n; j < into.stride; ++j) EXPECT_TRUE(std::isnan(into.at(i, j)));
      }
    }
  }
}

// What equal bits on any layout rest on: a product has the same bits at any address and among any
// other products.
TEST_P(GemmOf, AddressesAndOtherShapesChangeNoBit) {
  const OperandType type = GetParam();
  if (type == OperandType::bf16 && !has_bf16_products()) GTEST_SKIP() << "no bf16 products here";
  const int64_t m = 37, n = 65, k = 100;
  Matrix left(1, m, k, 0, type), right(2, n, k, 0, type);
  std::vector<float> first(static_cast<size_t>(m * n)), second(first.size() + 16);
  gemm(packed_gemm(type, m, n, k, false, true), left.data(type), right.data(type), first.data());
  for (int64_t other = 1; other < m; ++other) {
    gemm(packed_gemm(type, other, n, k % (other + 1), false, true), left.data(type),
         right.data(type), second.data());
  }
  for (size_t shift = 0; shift < 16; ++shift) {
    gemm(packed_gemm(type, m, n, k, false, true), left.data(type), right.data(type),
         second.data() + shift);
    EXPECT_EQ(std::memcmp(first.data(), second.data() + shift, first.size() * 4), 0) << shift;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, GemmOf, ::testing::Values(OperandType::fp32, OperandType::bf16),
                         [](const auto& info) {
                           return info.param == OperandType::bf16 ? "bf16" : "fp32";
                         });

}  // namespace
}  // namespace lockstep::kernels
