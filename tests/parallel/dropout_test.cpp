// Dropout of slices and heads: the draws of the whole tensor, whoever holds which piece.
#include "lockstep/parallel/tensor/run_dropout.h"
#include "tests/parallel/grains.h"

namespace lockstep::parallel {
namespace {

RankContext context_of(int64_t first_sample = 0) {
  RankContext context;
  context.seed = 7;
  context.step = 3;
  context.first_sample = first_sample;
  return context;
}

TEST(RunDropout, SlicesAndHeadsDrawTheirOwnElements) {
  constexpr int64_t B = 3, S = 8, D = 5, H = 8;
  // Of the whole tensors, sample by sample.
  const at::Tensor x_BSD = at::ones({B, S, D}), p_BHSS = at::ones({B, H, S, S});
  const auto whole = head_runs(0, B, 0);
  const at::Tensor tokens = run_dropout(x_BSD, whole, 0.3, context_of(), "h.0", "residual");
  const at::Tensor heads = run_dropout(p_BHSS, whole, 0.3, context_of(), "h.0", "probabilities");

  for (const int T : {1, 2, 4}) {
    const int64_t s = S / T, h = H / T;
    const at::Tensor slice_major = tokens.view({B, T, s, D}).transpose(0, 1).contiguous();
    for (int lo = 0; lo < T; ++lo) {
      for (int hi = lo + 1; hi <= T; ++hi) {
        const at::Tensor got =
            run_dropout(at::ones({hi - lo, B, s, D}), token_runs({lo, hi}, B, s * D), 0.3,
                        context_of(), "h.0", "residual");
        EXPECT_TRUE(same_bits(got, slice_major.narrow(0, lo, hi - lo).contiguous()));
      }
      const at::Tensor got = run_dropout(at::ones({B, h, S, S}), head_runs(lo, B, h * S * S), 0.3,
                                         context_of(), "h.0", "probabilities");
      EXPECT_TRUE(same_bits(got, heads.narrow(1, lo * h, h).contiguous()));
    }
  }
}

/// No factor is kept: those of backward are drawn anew.
TEST(RunDropout, AGradientMeetsTheFactorsOfItsValue) {
  constexpr int64_t B = 3, T = 4, s = 70, D = 5;
  const auto runs = token_runs({1, 3}, B, s * D);
  const auto drop = [&](const at::Tensor& x) {
    return run_dropout(x, runs, 0.3, context_of(), "h.0", "residual");
  };
  const at::Tensor factors = drop(at::ones({T / 2, B, s, D}));
  const at::Tensor x = at::linspace(-2, 3, factors.numel()).view_as(factors).requires_grad_();
  const at::Tensor gradient = at::linspace(0.5, 1.5, factors.numel()).view_as(factors);
  const at::Tensor y = drop(x);
  y.backward(gradient);
  EXPECT_TRUE(same_bits(y.detach(), x.detach() * factors));
  EXPECT_TRUE(same_bits(x.grad(), gradient * factors));
}

TEST(RunDropout, IsNothingInEvaluationAndForProbabilityZero) {
  const at::Tensor x = at::ones({1, 1, 4});
  RankContext evaluation = context_of();
  evaluation.training = false;
  EXPECT_TRUE(run_dropout(x, {{0, 0}}, 0.5, evaluation, "h.0", "residual").is_same(x));
  EXPECT_TRUE(run_dropout(x, {{0, 0}}, 0, context_of(), "h.0", "residual").is_same(x));
}

double share_equal(const at::Tensor& a, const at::Tensor& b) {
  return a.eq(b).to(at::kDouble).mean().item<double>();
}

// Two data ranks with two tensor ranks each; a sample of 4096 elements.
TEST(RunDropout, TP_3_ReplicatedOneMaskSplitDifferentMasks) {
  constexpr int64_t kElements = 4096, kHalf = kElements / 2;
  std::vector<at::Tensor> replicated, split;
  for (int dp = 0; dp < 2; ++dp) {
    for (int tp = 0; tp < 2; ++tp) {
      if (tp == 1) torch::rand({17});  // one rank's loader draws too
      const RankContext context = context_of(/*first_sample=*/dp);
      const auto all = token_runs({0, 2}, 1, kHalf);
      const auto own = token_runs({tp, tp + 1}, 1, kHalf);
      replicated.push_back(
          run_dropout(at::ones({2, 1, kHalf}), all, 0.5, context, "h.0", "residual"));
      split.push_back(run_dropout(at::ones({1, 1, kHalf}), own, 0.5, context, "h.0", "residual"));
    }
  }
  EXPECT_EQ(share_equal(replicated[0], replicated[1]), 1) << "inside a tensor group";
  EXPECT_EQ(share_equal(replicated[2], replicated[3]), 1);
  EXPECT_NEAR(share_equal(replicated[0], replicated[2]), 0.5, 0.05) << "between data ranks";
  for (size_t a = 0; a < 4; ++a) {
    for (size_t b = a + 1; b < 4; ++b) {
      EXPECT_NEAR(share_equal(split[a], split[b]), 0.5, 0.05) << a << " and " << b;
    }
  }
}

}  // namespace
}  // namespace lockstep::parallel
