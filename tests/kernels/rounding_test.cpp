// Rounding to bf16 and to fp16 against LibTorch's casts, over all exponents.
#include "lockstep/kernels/rounding.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "lockstep/base/counter_random.h"

namespace lockstep::kernels {
namespace {

/// All kinds: every exponent with digits at random, ties, infinities, not a number, both zeros.
std::vector<float> floats() {
  std::vector<float> all;
  const base::RandomKey key(1);
  for (uint32_t i = 0; i < 1 << 16; ++i) {
    all.push_back(std::bit_cast<float>(static_cast<uint32_t>(key.bits(i))));
    all.push_back(std::bit_cast<float>(i << 16));             // of bf16
    all.push_back(std::bit_cast<float>((i << 16) | 0x8000));  // half way between two
    all.push_back(std::bit_cast<float>((i << 16) | 0x1000));  // half way between two of fp16
  }
  for (const float x : {65504.0F, 65519.996F, 65520.0F, 0x1p-14F, 0x1p-24F, 0x1p-25F, 0x1.8p-25F,
                        std::numeric_limits<float>::infinity(), 1e-45F}) {
    all.push_back(x);
    all.push_back(-x);
  }
  return all;
}

at::Tensor tensor_of(const std::vector<float>& values) { return torch::tensor(values); }

TEST(Rounding, ToBf16IsLibTorchsCast) {
  const std::vector<float> all = floats();
  std::vector<uint16_t> got(all.size());
  to_bf16(got.data(), all.data(), static_cast<int64_t>(all.size()));
  const at::Tensor expected = tensor_of(all).to(at::kBFloat16);
  for (size_t i = 0; i < all.size(); ++i) {
    const float value = std::bit_cast<float>(uint32_t{got[i]} << 16);
    if (std::isnan(all[i])) {
      EXPECT_TRUE(std::isnan(value)) << i;
    } else {
      const auto at = static_cast<const uint16_t*>(expected.data_ptr())[i];
      ASSERT_EQ(got[i], at) << all[i];
    }
  }
}

TEST(Rounding, ToFp16IsLibTorchsCast) {
  const std::vector<float> all = floats();
  std::vector<float> got(all.size());
  round_to_fp16(got.data(), all.data(), static_cast<int64_t>(all.size()));
  const at::Tensor expected = tensor_of(all).to(at::kHalf).to(at::kFloat);
  for (size_t i = 0; i < all.size(); ++i) {
    const float at = expected.data_ptr<float>()[i];
    if (std::isnan(all[i])) {
      EXPECT_TRUE(std::isnan(got[i])) << i;
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(at)) << all[i];
    }
  }
}

TEST(Rounding, AnElementIsRoundedAlikeWhereverItStands) {
  const std::vector<float> all = floats();
  std::vector<uint16_t> whole(70), part(70);
  std::vector<float> whole_half(70), part_half(70);
  to_bf16(whole.data(), all.data(), 70);
  round_to_fp16(whole_half.data(), all.data(), 70);
  for (int64_t first = 0; first < 70; ++first) {
    to_bf16(part.data(), all.data() + first, 70 - first);
    round_to_fp16(part_half.data(), all.data() + first, 70 - first);
    const auto count = static_cast<size_t>(70 - first);
    EXPECT_EQ(std::memcmp(part.data(), whole.data() + first, 2 * count), 0);
    EXPECT_EQ(std::memcmp(part_half.data(), whole_half.data() + first, 4 * count), 0);
  }
}

}  // namespace
}  // namespace lockstep::kernels
