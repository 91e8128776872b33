/// What the tests of fused functions share: values, and the comparison with a twin of LibTorch's
/// operators in float64, whose own error (2^-53 and a few operations) the bounds' slack holds.
#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/base/counter_random.h"

namespace lockstep::fused {

/// Half a unit of a float at 1: the relative error of one rounding.
inline constexpr double kRound = 0x1p-24;
inline const std::vector<int64_t> kSizes = {1, 3, 17, 129, 384};

inline at::Tensor values(uint64_t seed, at::IntArrayRef shape, double size = 1) {
  const base::RandomKey key(seed);
  at::Tensor x = torch::empty(shape);
  for (int64_t i = 0; i < x.numel(); ++i) {
    x.data_ptr<float>()[i] = static_cast<float>(size * key.normal(static_cast<uint64_t>(i)));
  }
  return x;
}

inline at::Tensor leaf(const at::Tensor& x) { return x.detach().clone().requires_grad_(); }
inline at::Tensor twin_of(const at::Tensor& x) { return leaf(x.to(at::kDouble)); }

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() &&
         torch::equal(a.contiguous().view(at::kInt), b.contiguous().view(at::kInt));
}

/// `bound` for each element, or broadcast; results that underflow are off by less than a float's
/// least normal number.
inline void expect_within(const at::Tensor& got, const at::Tensor& expected,
                          const at::Tensor& bound) {
  ASSERT_TRUE(got.defined() && expected.defined());
  ASSERT_EQ(got.sizes(), expected.sizes());
  if (got.numel() == 0) return;
  const at::Tensor error = (got.to(at::kDouble) - expected.detach()).abs();
  const double share = (error / (bound.detach() + 0x1p-126)).max().item<double>();
  EXPECT_LE(share, 1) << "of the bound; largest error " << error.max().item<double>();
}

}  // namespace lockstep::fused
