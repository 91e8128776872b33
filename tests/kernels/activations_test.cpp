// GELU and SwiGLU against plain code of one operation a line, which is compiled for no particular
// instruction set: equal bits at each length and offset.
#include <limits>

#include "lockstep/kernels/detail/sigmoid.h"
#include "lockstep/kernels/gelu.h"
#include "lockstep/kernels/swiglu.h"
#include "tests/kernels/spans.h"

namespace lockstep::kernels {
namespace {

constexpr int64_t kOffsets[] = {0, 1, 7, 13};
constexpr float kTwoC = 0x1.988454p+0f, kTwoCTimesCubic = 0x1.2444f2p-4f;

struct Expected {
  float y, dx;
};

Expected gelu_of(float x, float dy) {
  const float square = x * x;
  const float cubic = kTwoCTimesCubic * square;
  const float z = x * (kTwoC + cubic);
  const detail::Sigmoid s = detail::sigmoid(z);
  const float slope_cubic = 3 * kTwoCTimesCubic * square;
  const float slope = kTwoC + slope_cubic;
  const float spread = s.value * s.rest;
  const float bend = x * spread;
  const float turn = bend * slope;
  return {x * s.value, dy * (s.value + turn)};
}

TEST(Gelu, SameBitsAtEachLengthAndOffset) {
  for (const int64_t offset : kOffsets) {
    for (int64_t count = 0; count <= kLongest; ++count) {
      const int64_t size = offset + kLongest + 1;
      const std::vector<float> x = span_of(1, size, 6), dy = span_of(2, size);
      std::vector<float> y(size, -7.0f), dx(size, -7.0f), expected_y = y, expected_dx = dx;
      for (int64_t i = offset; i < offset + count; ++i) {
        const Expected expected = gelu_of(x[i], dy[i]);
        expected_y[i] = expected.y;
        expected_dx[i] = expected.dx;
      }
      gelu(y.data() + offset, x.data() + offset, count);
      gelu_backward(dx.data() + offset, dy.data() + offset, x.data() + offset, count);
      expect_same_bits(y, expected_y);  // beyond `count` too
      expect_same_bits(dx, expected_dx);
    }
  }
}

TEST(Gelu, FarOutIsTheLineOrNothing) {
  const std::vector<float> x = {1e4f, -1e4f, 1e15f, -1e15f, std::numeric_limits<float>::max()};
  const std::vector<float> ones(x.size(), 1.0f);
  std::vector<float> y(x.size()), dx(x.size());
  gelu(y.data(), x.data(), static_cast<int64_t>(x.size()));
  EXPECT_EQ(y, (std::vector<float>{1e4f, 0, 1e15f, 0, std::numeric_limits<float>::max()}));
  gelu_backward(dx.data(), ones.data(), x.data(), 4);
  EXPECT_EQ(dx, (std::vector<float>{1, 0, 1, 0, 0}));
}

TEST(Swiglu, SameBitsAtEachWidth) {
  constexpr int64_t kRows = 3;
  for (int64_t width = 0; width <= kLongest; ++width) {
    const std::vector<float> gate_up = span_of(3, kRows * 2 * width, 6);
    const std::vector<float> dy = span_of(4, kRows * width);
    std::vector<float> y(kRows * width + 1, -7.0f), d_gate_up(gate_up.size() + 1, -7.0f);
    std::vector<float> expected_y = y, expected_d = d_gate_up;
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t i = 0; i < width; ++i) {
        const int64_t at = row * width + i, gate_at = row * 2 * width + i, up_at = gate_at + width;
        const float gate = gate_up[gate_at], up = gate_up[up_at];
        const detail::Sigmoid s = detail::sigmoid(gate);
        const float swish = gate * s.value;
        expected_y[at] = swish * up;
        const float bend = swish * s.rest;
        const float slope = s.value + bend;
        const float by_up = dy[at] * up;
        expected_d[gate_at] = by_up * slope;
        expected_d[up_at] = dy[at] * swish;
      }
    }
    swiglu(y.data(), gate_up.data(), kRows, width);
    swiglu_backward(d_gate_up.data(), dy.data(), gate_up.data(), kRows, width);
    expect_same_bits(y, expected_y);
    expect_same_bits(d_gate_up, expected_d);
  }
}

TEST(Sigmoid, AndItsRestAreBothRightFarOut) {
  for (const float x : {-200.0f, -80.0f, -20.0f, -1.0f, 0.0f, 1.0f, 20.0f, 80.0f, 200.0f}) {
    const detail::Sigmoid s = detail::sigmoid(x);
    const double value = 1 / (1 + std::exp(-static_cast<double>(x)));
    const double rest = 1 / (1 + std::exp(static_cast<double>(x)));
    // e^x is within 2 units; sum, quotient and product add a half each. Below, floats end.
    const double bound = 4 * 0x1p-23;
    EXPECT_NEAR(s.value, value, bound * value + 0x1p-126) << x;
    EXPECT_NEAR(s.rest, rest, bound * rest + 0x1p-126) << x;
  }
}

}  // namespace
}  // namespace lockstep::kernels
