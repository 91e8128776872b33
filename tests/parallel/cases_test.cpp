// Situations of tensor parallelism that must come out right.
#include <cmath>

#include "lockstep/parallel/tensor/row_linear.h"
#include "lockstep/parallel/tensor/slice_norm.h"
#include "lockstep/parallel/tensor/vocab_cross_entropy.h"
#include "tests/parallel/grains.h"

namespace lockstep::parallel {
namespace {

TEST(TensorCases, TP_1_TheBiasOfARowLinearIsAddedOnce) {
  on_ranks({2}, [](ProcessGroup& ranks) {
    const TensorGroup group = shared_by(ranks, false, 2);
    // x = [1, 2] by columns, in each of the two token slices.
    const at::Tensor x = at::full({2, 1, 1, 1}, ranks.rank() + 1.0, at::kFloat);
    const at::Tensor weight = leaf(at::ones({1, 1})), bias = leaf(at::full({1}, 10.0f));
    const at::Tensor z = row_linear(group, {leaf(x)}, {weight}, bias);
    EXPECT_TRUE(same_bits(z, at::full({2, 1, 1, 1}, 13.0f)));
    z.backward(at::tensor({3.0f, 4.0f}).view({2, 1, 1, 1}));
    EXPECT_TRUE(same_bits(bias.grad(), at::tensor({7.0f}))) << "dy of both tokens, once";
  });
}

TEST(TensorCases, TP_2_BiasGradientsCoverTheTokensOfAllRanks) {
  on_ranks({2}, [](ProcessGroup& ranks) {
    const TensorGroup group = shared_by(ranks, true, 2);
    const at::Tensor bias = leaf(at::zeros({1}));
    const at::Tensor z =
        row_linear(group, {leaf(at::ones({2, 1, 2, 1}))}, {leaf(at::ones({1, 1}))}, bias);
    EXPECT_EQ(z.numel(), 2) << "2 of 4 tokens";
    z.backward(at::ones_like(z));
    EXPECT_TRUE(same_bits(bias.grad(), at::tensor({4.0f})));

    const at::Tensor gain = leaf(at::ones({3})), shift = leaf(at::zeros({3}));
    const at::Tensor y = layer_norm(group, values(1, {1, 1, 2, 3}), gain, shift, 1e-5);
    y.backward(at::ones_like(y));
    EXPECT_TRUE(same_bits(shift.grad(), at::full({3}, 4.0f)));
  });
}

TEST(TensorCases, TP_4_IgnoredTargetsGiveNeitherLossNorNaN) {
  const int64_t none = kIgnored;
  on_ranks({2}, [&](ProcessGroup& ranks) {
    const TensorGroup group = shared_by(ranks, false, 2);
    const auto run = [&](const std::vector<int64_t>& targets, at::Tensor& gradient) {
      const at::Tensor logits = leaf(at::zeros({static_cast<int64_t>(targets.size()), 2}));
      const at::Tensor losses =
          vocab_cross_entropy(group, {logits}, at::tensor(targets, at::kLong), 4);
      losses.sum().backward();
      gradient = logits.grad();
      EXPECT_TRUE(at::isfinite(gradient).all().item<bool>());
      return losses;
    };
    at::Tensor gradient;
    at::Tensor losses = run({2, none}, gradient);
    EXPECT_NEAR(losses[0].item<double>(), 1.386294, 1e-6);
    EXPECT_EQ(losses[1].item<double>(), 0);
    EXPECT_TRUE(same_bits(gradient[1], at::zeros({2})));
    EXPECT_EQ(gradient[0][0].item<double>(), ranks.rank() == 1 ? -0.75 : 0.25);

    losses = run({none, none}, gradient);
    EXPECT_TRUE(same_bits(losses, at::zeros({2})));
    EXPECT_TRUE(same_bits(gradient, at::zeros({2, 2})));
  });
  // Data ranks: one without a token that counts adds nothing to a mean over the step's 3 tokens.
  const auto sum_of = [&](const std::vector<int64_t>& targets) {
    return vocab_cross_entropy(alone(2), {at::zeros({3, 2}), at::zeros({3, 2})},
                               at::tensor(targets, at::kLong), 4)
        .sum()
        .item<double>();
  };
  EXPECT_EQ(sum_of({none, none, none}), 0);
  EXPECT_NEAR((sum_of({none, none, none}) + sum_of({0, 1, 2})) / 3, std::log(4.0), 1e-6);
}

}  // namespace
}  // namespace lockstep::parallel
