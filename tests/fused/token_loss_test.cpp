// The head with its loss against cross-entropy of whole logits in float64.
#include "lockstep/fused/token_loss.h"

#include <ATen/ops/cross_entropy_loss.h>

#include "lockstep/base/error.h"
#include "lockstep/kernels/gemm.h"
#include "tests/fused/twin.h"

namespace lockstep::fused {
namespace {

using plan::ComputeType;

struct Case {
  const char* name;
  int64_t rows, width, vocab;
  ComputeType compute = ComputeType::fp32;
};

// Below and above a block of 512 tokens and a tile of 1024 token ids.
const std::vector<Case> kCases = {
    {"one", 1, 1, 1},        {"odd", 11, 7, 67},     {"blocks", 700, 12, 67},
    {"tiles", 33, 20, 2500}, {"both", 513, 9, 1025}, {"bf16", 513, 24, 1025, ComputeType::bf16}};

at::Tensor targets_of(const Case& of) {
  at::Tensor targets = torch::empty({of.rows}, at::kLong);
  for (int64_t i = 0; i < of.rows; ++i) {
    targets.data_ptr<int64_t>()[i] = static_cast<int64_t>(
        base::RandomKey(5).below(static_cast<uint64_t>(i), static_cast<uint64_t>(of.vocab)));
  }
  return targets;
}

Arithmetic arithmetic_of(const Case& of) { return {.fused = true, .compute = of.compute}; }

/// What is compared, of the loss's sum weighted by `d_losses`.
struct Result {
  at::Tensor losses, dx, dw;
};

Result got(const Case& of, const at::Tensor& targets, const at::Tensor& d_losses) {
  const at::Tensor x = leaf(values(1, {of.rows, of.width})),
                   w = leaf(values(2, {of.vocab, of.width}));
  const at::Tensor losses = token_losses(arithmetic_of(of), x, w, targets);
  losses.backward(d_losses);
  return {losses.detach(), x.grad(), w.grad()};
}

/// The twin takes the operands as they were rounded, so that bf16 has the bounds of its sums alone.
struct Twin {
  Twin(const Case& of, const at::Tensor& targets, const at::Tensor& d_losses) {
    const Arithmetic arithmetic = arithmetic_of(of);
    x = twin_of(operand(arithmetic, values(1, {of.rows, of.width})));
    w = twin_of(operand(arithmetic, values(2, {of.vocab, of.width})));
    logits = at::matmul(x, w.t());
    losses = at::cross_entropy_loss(logits, targets, {}, at::Reduction::None, -100);
    losses.backward(d_losses.to(at::kDouble));
    const at::NoGradGuard guard;
    const double u = kRound, V = static_cast<double>(of.vocab), D = static_cast<double>(of.width),
                 R = static_cast<double>(of.rows);
    // Of a logit: D products and additions. log of the sum: the maximum's and the sum's errors, of
    // V / 16 + 1 additions a tile and one for each tile.
    const at::Tensor e_l = at::matmul(x.abs(), w.abs().t()) * ((D + 2) * u);
    const at::Tensor worst = e_l.amax(1);
    const double additions = std::min(V, 1024.0) / 16 + V / 1024 + 12;
    const at::Tensor largest = logits.abs().amax(1);
    of_losses = 1.1 * (2 * worst + (3 * largest + additions + losses.abs()) * u);
    // Of e = p - [target], with p's own relative error; bf16 rounds it once more.
    const at::Tensor p = at::softmax(logits, -1), g = d_losses.to(at::kDouble).abs().unsqueeze(1);
    const at::Tensor hit = at::zeros_like(p).scatter_(1, targets.clamp_min(0).unsqueeze(1), 1);
    const at::Tensor counts = targets.ge(0).to(at::kDouble).unsqueeze(1);
    const at::Tensor e_p =
        p * (2 * worst.unsqueeze(1) + (2 * largest.unsqueeze(1) + additions + 6) * u) + hit * 2 * u;
    const at::Tensor e = (p - hit).abs() * counts * g;
    const double r = of.compute == ComputeType::bf16 ? 0x1p-8 : 0;
    const at::Tensor e_e = e_p * counts * g + e * (r + 3 * u);
    of_dx = 1.1 * at::matmul(e_e + e * ((V + 4) * u), w.abs());
    of_dw = 1.1 * at::matmul((e_e + e * ((R + 4) * u)).t(), x.abs());
  }
  at::Tensor x, w, logits, losses;
  at::Tensor of_losses, of_dx, of_dw;  // bounds
};

class TokenLossOf : public ::testing::TestWithParam<Case> {};

TEST_P(TokenLossOf, IsCrossEntropyOfLogits) {
  const Case& of = GetParam();
  if (of.compute == ComputeType::bf16 && !kernels::has_bf16_products()) {
    GTEST_SKIP() << "no bf16 products here";
  }
  at::Tensor targets = targets_of(of);
  if (of.rows > 3) targets[3] = -100;  // does not count
  const at::Tensor uniform = at::full({of.rows}, 0.25F), uneven = values(3, {of.rows});
  for (const at::Tensor& d_losses : {uniform, uneven}) {
    const Result result = got(of, targets, d_losses);
    const Twin twin(of, targets, d_losses);
    expect_within(result.losses, twin.losses, twin.of_losses);
    expect_within(result.dx, twin.x.grad(), twin.of_dx);
    expect_within(result.dw, twin.w.grad(), twin.of_dw);
    if (of.rows > 3) {
      EXPECT_EQ(result.losses[3].item<float>(), 0);
      EXPECT_TRUE(result.dx[3].eq(0).all().item<bool>());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, TokenLossOf, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

TEST(TokenLoss, AScaleOfTwoChangesNoDigit) {
  const Case of{"scale", 40, 8, 67};
  const Result plain = got(of, targets_of(of), at::full({40}, 1.0F / 1024));
  const Result scaled = got(of, targets_of(of), at::full({40}, 64.0F));
  EXPECT_TRUE(same_bits(plain.dx * 65536, scaled.dx));
  EXPECT_TRUE(same_bits(plain.dw * 65536, scaled.dw));
}

TEST(TokenLoss, ATokenWithoutANumberThatDoesNotCountSpoilsNothing) {
  const Case of{"nan", 5, 8, 67};
  const at::Tensor input = values(1, {5, 8});
  input[3].fill_(NAN);
  at::Tensor targets = targets_of(of);
  targets[3] = -100;
  const at::Tensor x = leaf(input), w = leaf(values(2, {67, 8}));
  token_losses(arithmetic_of(of), x, w, targets).sum().backward();
  EXPECT_TRUE(x.grad()[3].eq(0).all().item<bool>());
  EXPECT_TRUE(x.grad().isfinite().all().item<bool>());
}

TEST(TokenLoss, ComputesWhatIsAskedFor) {
  const Case of{"frozen", 20, 8, 67};
  const at::Tensor x = leaf(values(1, {20, 8})), w = values(2, {67, 8});
  token_losses(arithmetic_of(of), x, w, targets_of(of)).sum().backward();  // w is frozen
  const at::Tensor again = leaf(values(1, {20, 8})), trained = leaf(w);
  token_losses(arithmetic_of(of), again, trained, targets_of(of)).sum().backward();
  EXPECT_TRUE(same_bits(x.grad(), again.grad()));

  at::Tensor taken;
  const at::Tensor third = leaf(values(1, {20, 8})), deferred = leaf(w);
  token_losses(arithmetic_of(of), third, deferred, targets_of(of),
               [&](const at::Tensor& gradient) { taken = gradient; })
      .sum()
      .backward();
  EXPECT_TRUE(same_bits(taken, trained.grad()));
  EXPECT_FALSE(deferred.grad().defined()) << "the sink has it";
}

TEST(TokenLoss, OfNothingIsNothing) {
  const at::Tensor x = leaf(values(1, {0, 8})), w = leaf(values(2, {67, 8}));
  const at::Tensor losses = token_losses({.fused = true}, x, w, torch::empty({0}, at::kLong));
  EXPECT_EQ(losses.numel(), 0);
  losses.sum().backward();
  EXPECT_TRUE(w.grad().eq(0).all().item<bool>());
}

TEST(TokenLoss, ATargetBehindTheVocabularyIsRefused) {
  const at::Tensor targets = torch::full({2}, 67, at::kLong);
  try {
    token_losses({.fused = true}, values(1, {2, 8}), values(2, {67, 8}), targets);
    ADD_FAILURE() << "it was taken";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("target 67 is not in a vocabulary of 67"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep::fused
