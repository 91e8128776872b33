// Head and loss in one over a divided vocabulary.
#include "lockstep/parallel/tensor/vocab_head.h"

#include <ATen/ops/cross_entropy_loss.h>

#include "lockstep/base/error.h"
#include "lockstep/kernels/gemm.h"
#include "lockstep/parallel/tensor/vocab_embedding.h"
#include "tests/parallel/grains.h"

namespace lockstep::parallel {
namespace {

constexpr int64_t kWidth = 7;

/// kGrains x batch x slice tokens.
struct Shape {
  int64_t batch, slice, vocab;
  int64_t tokens() const { return kGrains * batch * slice; }
};
// A block of 512 tokens and a part of one; a grain without a token id; tiles of 1024 token ids.
constexpr Shape kShapes[] = {{2, 65, 13}, {2, 3, 5}, {1, 2, 4300}};

TensorGroup with(TensorGroup group, plan::ComputeType compute) {
  group.arithmetic = {.fused = true, .compute = compute};
  return group;
}

struct Loss {
  Loss(const TensorGroup& group, const Shape& shape, bool uniform)
      : x(leaf(own_slices(group, values(1, {kGrains, shape.batch, shape.slice, kWidth})))),
        weights(own_leaves(group, grain_values(2, {vocab_rows(shape.vocab, kGrains), kWidth}))) {
    targets = torch::empty({shape.tokens()}, at::kLong);
    for (int64_t i = 0; i < shape.tokens(); ++i) {
      targets.data_ptr<int64_t>()[i] = static_cast<int64_t>(
          base::RandomKey(3).below(static_cast<uint64_t>(i), static_cast<uint64_t>(shape.vocab)));
    }
    targets[3] = -100;
    losses = head_losses(group, x, weights, targets, shape.vocab);
    seed = uniform ? at::full({shape.tokens()}, 0.125F) : values(4, {shape.tokens()});
    losses.backward(seed);
  }
  at::Tensor x;
  std::vector<at::Tensor> weights;
  at::Tensor targets, losses, seed;
};

TEST(VocabHead, OneResultOnEveryLayout) {
  for (const plan::ComputeType compute : {plan::ComputeType::fp32, plan::ComputeType::bf16}) {
    if (compute == plan::ComputeType::bf16 && !kernels::has_bf16_products()) continue;
    for (const Shape& shape : kShapes) {
      const bool uniform = shape.vocab != 5;
      const Loss expected(with(alone(), compute), shape, uniform);
      on_layouts([&](const TensorGroup& group) {
        const Loss got(with(group, compute), shape, uniform);
        EXPECT_TRUE(same_bits(got.losses, expected.losses)) << "alike on every rank";
        EXPECT_TRUE(same_bits(got.x.grad(), own_slices(group, expected.x.grad()))) << "dx";
        expect_own_bits(group, gradients_of(got.weights), gradients_of(expected.weights), "rows");
      });
    }
  }
}

TEST(VocabHead, IsThePlainFormula) {
  for (const Shape& shape : kShapes) {
    for (const bool uniform : {true, false}) {
      const Loss got(with(alone(), plan::ComputeType::fp32), shape, uniform);
      const at::Tensor x = leaf(got.x.detach().flatten(0, 2).to(at::kDouble));
      const at::Tensor w = leaf(at::cat(got.weights).narrow(0, 0, shape.vocab).to(at::kDouble));
      const at::Tensor exact =
          at::cross_entropy_loss(at::matmul(x, w.t()), got.targets, {}, at::Reduction::None, -100);
      exact.backward(got.seed.to(at::kDouble));
      // A logit is a sum of kWidth products; the loss adds the sum's and the logarithm's roundings
      // (tests/fused/token_loss_test.cpp derives them one by one).
      const double logit = at::matmul(x.detach().abs(), w.detach().abs().t()).max().item<double>();
      const double relative =
          (4 * (kWidth + 4) * logit + static_cast<double>(shape.vocab) / 16 + 40) * 0x1p-24;
      EXPECT_LE(share_of_bound(got.losses, exact.detach(), at::full({1}, relative, at::kDouble)),
                1);
      const at::Tensor seeds = got.seed.abs().to(at::kDouble);
      const at::Tensor of_dx =
          seeds.unsqueeze(1) * (2 * relative) * w.detach().abs().max().item<double>() * 2 + 1e-30;
      EXPECT_LE(share_of_bound(got.x.grad().flatten(0, 2), x.grad(), of_dx), 1);
      const double of_dw =
          4 * relative * seeds.sum().item<double>() * x.detach().abs().max().item<double>();
      const at::Tensor dw = at::cat(gradients_of(got.weights));
      EXPECT_LE(
          share_of_bound(dw.narrow(0, 0, shape.vocab), w.grad(), at::full({1}, of_dw, at::kDouble)),
          1);
      EXPECT_TRUE(dw.narrow(0, shape.vocab, dw.size(0) - shape.vocab).eq(0).all().item<bool>())
          << "rows that pad";
    }
  }
}

TEST(VocabHead, ATargetBehindTheVocabularyIsRefused) {
  const TensorGroup group = with(alone(), plan::ComputeType::fp32);
  const auto weights = own_leaves(group, grain_values(2, {4, kWidth}));
  const at::Tensor x = values(1, {kGrains, 1, 1, kWidth});
  EXPECT_NE(test::message_of<UsageError>([&] {
              head_losses(group, x, weights, at::full({4}, 13, at::kLong), 13);
            }).find("target 13 is not in a vocabulary of 13"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::parallel
