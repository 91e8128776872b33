// GELU and SwiGLU against LibTorch's operators in float64.
#include "lockstep/base/error.h"
#include "lockstep/fused/gelu.h"
#include "lockstep/fused/swiglu.h"
#include "tests/fused/twin.h"

namespace lockstep::fused {
namespace {

TEST(FusedGelu, IsTheFormula) {
  for (const int64_t width : kSizes) {
    const at::Tensor x = leaf(values(1, {5, width}, 2)), twin = twin_of(x);
    const at::Tensor dy = values(2, {5, width});
    // LibTorch's 1 + tanh cancels far below zero, in float64 too: there it has no digit to compare.
    const at::Tensor z = 2 * std::sqrt(2 / M_PI) * (twin + 0.044715 * twin.pow(3));
    const at::Tensor y = fused::gelu(x), expected = twin * at::sigmoid(z);
    expect_within(expected, at::gelu(twin, "tanh"), 0x1p-50 * twin.abs());
    y.backward(dy);
    expected.backward(dy.to(at::kDouble));
    // In roundings: z = x (a + b x x) has 4, its two constants one each, all terms of one sign: 6.
    // An error d of z is one of d |z| of e^-z, which adds 4 of its own (2 units); sigmoid two more.
    const at::Tensor s = at::sigmoid(z), rest = at::sigmoid(-z), of_s = 6 * z.abs() + 6;
    expect_within(y, expected, kRound * (of_s + 1) * expected.abs());
    // 1 - s is e s, or a difference from at most a half, which doubles: twice of_s covers both. The
    // product x s (1 - s) z' has 3 + 5 more; two roundings are of the sum and of dy.
    const at::Tensor turn =
        twin * s * rest * 2 * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * twin.pow(2));
    expect_within(x.grad(), twin.grad(),
                  kRound * dy.abs() * (s * (of_s + 2) + turn.abs() * (3 * of_s + 10)));
  }
}

TEST(FusedSwiglu, IsTheFormula) {
  for (const int64_t width : kSizes) {
    const at::Tensor x = leaf(values(1, {2, 3, 2 * width}, 2)), twin = twin_of(x);
    const at::Tensor dy = values(2, {2, 3, width});
    const std::vector<at::Tensor> halves = twin.chunk(2, -1);
    const at::Tensor y = swiglu(x), expected = at::silu(halves[0]) * halves[1];
    y.backward(dy);
    expected.backward(dy.to(at::kDouble));
    // In roundings: e^-gate has 4 (2 units), the sigmoid two more; two products.
    expect_within(y, expected, kRound * 8 * expected.abs());
    // 1 - s at most twice those of s: of d_gate the sum's second term has 6 + 12 and three
    // products, the whole two products and the sum.
    const at::Tensor s = at::sigmoid(halves[0]), rest = at::sigmoid(-halves[0]);
    const at::Tensor of_gate = 24 * (dy * halves[1]).abs() * (s + (halves[0] * s * rest).abs());
    const at::Tensor of_up = 8 * (dy * halves[0] * s).abs();
    expect_within(x.grad(), twin.grad(), kRound * torch::cat({of_gate, of_up}, -1));
  }
}

TEST(FusedActivations, ASliceHasTheBitsOfTheWhole) {
  const at::Tensor x = leaf(values(1, {129}, 3)), dy = values(2, {129});
  const at::Tensor whole = fused::gelu(x);
  whole.backward(dy);
  for (const int64_t first : {0, 1, 5}) {
    for (const int64_t count : {1, 15, 16, 17, 100}) {
      const at::Tensor part = leaf(x.narrow(0, first, count));
      const at::Tensor y = fused::gelu(part);
      y.backward(dy.narrow(0, first, count));
      EXPECT_TRUE(same_bits(y, whole.narrow(0, first, count)));
      EXPECT_TRUE(same_bits(part.grad(), x.grad().narrow(0, first, count)));
    }
  }
}

TEST(FusedActivations, TakeViewsAndGradientsOfAnyStride) {
  const at::Tensor x = values(1, {6, 8});
  const at::Tensor turned = leaf(x), straight = leaf(x.t());
  const at::Tensor dy = values(2, {8, 3}), gelu_dy = values(3, {6, 8});
  swiglu(turned.t()).backward(dy.t().contiguous().t());
  swiglu(straight).backward(dy);
  EXPECT_TRUE(same_bits(turned.grad().t(), straight.grad()));
  const at::Tensor a = leaf(x), b = leaf(x);
  fused::gelu(a).backward(gelu_dy.t().contiguous().t());
  fused::gelu(b).backward(gelu_dy);
  EXPECT_TRUE(same_bits(a.grad(), b.grad()));
}

TEST(FusedActivations, OfNothingIsNothing) {
  const at::Tensor x = leaf(torch::empty({0, 6})), none = leaf(torch::empty({3, 0}));
  swiglu(x).sum().backward();
  fused::gelu(none).sum().backward();
  EXPECT_EQ(x.grad().sizes(), x.sizes());
  EXPECT_EQ(none.grad().sizes(), none.sizes());
  EXPECT_EQ(swiglu(none).sizes(), none.sizes());
}

TEST(FusedActivations, RefuseWhatTheyDoNotCompute) {
  EXPECT_THROW(fused::gelu(torch::zeros({2}, at::kDouble)), UsageError);
  EXPECT_THROW(swiglu(torch::zeros({2, 2}, at::kBFloat16)), UsageError);
  EXPECT_THROW(swiglu(torch::zeros({2, 3})), UsageError);
  EXPECT_FALSE(fused::gelu(torch::zeros({2})).requires_grad());
}

}  // namespace
}  // namespace lockstep::fused
