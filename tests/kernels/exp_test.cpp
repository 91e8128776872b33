// e^x against the C library's in fp64, over all exponents.
#include "lockstep/kernels/detail/exp.h"

#include <algorithm>
#include <limits>

#include "lockstep/kernels/detail/clones.h"
#include "tests/kernels/spans.h"

namespace lockstep::kernels {
namespace {

LOCKSTEP_CLONES
void exp_of_all(float* __restrict into, const float* __restrict values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) into[i] = detail::exp(values[i]);
}

TEST(Exp, OfEveryKindOfFloat) {
  // A prime stride walks every exponent of both signs. The C library's result is within a
  // thousandth of a float's unit, which the rest of the bound holds.
  constexpr uint64_t kStride = 1009;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += kStride) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    const float got = detail::exp(x);
    if (std::isnan(x)) {
      ASSERT_TRUE(std::isnan(got));
      continue;
    }
    const double expected = std::exp(static_cast<double>(x));
    if (std::isinf(static_cast<float>(expected))) {
      ASSERT_EQ(got, std::numeric_limits<float>::infinity()) << x;
      continue;
    }
    int exponent = 0;
    std::frexp(expected, &exponent);
    const double unit = std::ldexp(1.0, std::max(exponent - 24, -149));
    ASSERT_LE(std::fabs(got - expected), 2 * unit) << x;
  }
}

TEST(Exp, AtTheEdges) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(detail::exp(0.0f), 1.0f);
  EXPECT_EQ(detail::exp(-0.0f), 1.0f);
  EXPECT_EQ(detail::exp(-kInfinity), 0.0f);
  EXPECT_EQ(detail::exp(kInfinity), kInfinity);
  EXPECT_EQ(detail::exp(std::numeric_limits<float>::max()), kInfinity);
  EXPECT_EQ(detail::exp(std::numeric_limits<float>::lowest()), 0.0f);
  EXPECT_EQ(detail::exp(-103.5f), std::numeric_limits<float>::denorm_min());
}

TEST(Exp, SameBitsInVectorBodyTailAndAlone) {
  for (int64_t count = 0; count <= kLongest; ++count) {
    const std::vector<float> values = span_of(1, count, 110);
    std::vector<float> got(values.size()), expected;
    for (const float value : values) expected.push_back(detail::exp(value));
    exp_of_all(got.data(), values.data(), count);
    expect_same_bits(got, expected);
  }
}

}  // namespace
}  // namespace lockstep::kernels
