// Embedding and cross-entropy over a divided vocabulary.
#include "lockstep/base/error.h"
#include "lockstep/parallel/tensor/vocab_cross_entropy.h"
#include "lockstep/parallel/tensor/vocab_embedding.h"
#include "tests/parallel/grains.h"

namespace lockstep::parallel {
namespace {

constexpr int64_t kBatch = 2, kSlice = 3, kWidth = 7, kVocab = 13;  // 4 rows a grain, 3 that pad
constexpr int64_t kTokens = kGrains * kBatch * kSlice;

at::Tensor token_ids(uint64_t seed, at::IntArrayRef shape, int64_t vocab = kVocab) {
  at::Tensor ids = torch::empty(shape, at::kLong);
  for (int64_t i = 0; i < ids.numel(); ++i) {
    ids.data_ptr<int64_t>()[i] = static_cast<int64_t>(
        base::RandomKey(seed).below(static_cast<uint64_t>(i), static_cast<uint64_t>(vocab)));
  }
  return ids;
}

struct Embedding {
  explicit Embedding(const TensorGroup& group)
      : ids(token_ids(1, {kGrains, kBatch, kSlice})),
        weights(own_leaves(group, grain_values(2, {vocab_rows(kVocab, kGrains), kWidth}))),
        positions(leaf(values(3, {kGrains * kSlice + 2, kWidth}))) {
    output = vocab_embedding(group, ids, weights, positions, kVocab);
    output.backward(own_slices(group, values(4, {kGrains, kBatch, kSlice, kWidth})));
  }
  at::Tensor ids;
  std::vector<at::Tensor> weights;
  at::Tensor positions, output;
};

TEST(VocabEmbedding, OneResultOnEveryLayout) {
  const Embedding expected(alone());
  on_layouts([&](const TensorGroup& group) {
    const Embedding got(group);
    EXPECT_TRUE(same_bits(got.output, own_slices(group, expected.output)));
    expect_own_bits(group, gradients_of(got.weights), gradients_of(expected.weights), "rows");
    EXPECT_TRUE(same_bits(got.positions.grad(), expected.positions.grad())) << "positions";
  });
}

TEST(VocabEmbedding, IsThePlainLookUp) {
  const Embedding got(alone());
  const at::Tensor table = leaf(at::cat(got.weights)), positions = leaf(got.positions);
  // Slice-major back to [B, S].
  const at::Tensor ids_BS = got.ids.transpose(0, 1).flatten(1, 2);
  const at::Tensor x_BSD = at::embedding(table, ids_BS) + positions.narrow(0, 0, kGrains * kSlice);
  EXPECT_TRUE(same_bits(x_BSD.detach(), got.output.detach().transpose(0, 1).flatten(1, 2)));

  const at::Tensor dx = values(4, {kGrains, kBatch, kSlice, kWidth});
  x_BSD.backward(dx.transpose(0, 1).flatten(1, 2));
  const at::Tensor magnitude = at::full({1}, dx.abs().max().item<double>() * kTokens, at::kDouble);
  EXPECT_LE(share_of_bound(at::cat(gradients_of(got.weights)), table.grad().to(at::kDouble),
                           2 * sum_bound(magnitude, kTokens)),
            1);
  EXPECT_LE(share_of_bound(got.positions.grad(), positions.grad().to(at::kDouble),
                           2 * sum_bound(magnitude, kBatch)),
            1);
  EXPECT_TRUE(same_bits(at::cat(gradients_of(got.weights)).narrow(0, kVocab, 3).contiguous(),
                        at::zeros({3, kWidth})))
      << "rows that pad";
}

TEST(VocabEmbedding, AnIdThatOnlyPadsIsRefused) {
  const auto weights = own_leaves(alone(), grain_values(2, {4, kWidth}));
  const at::Tensor ids = at::full({kGrains, 1, 1}, kVocab, at::kLong);
  EXPECT_NE(test::message_of<UsageError>([&] {
              vocab_embedding(alone(), ids, weights, {}, kVocab);
            }).find("token id 13 is not in a vocabulary of 13"),
            std::string::npos);
}

struct Loss {
  explicit Loss(const TensorGroup& group, int64_t vocab = kVocab)
      : logits(own_leaves(group, grain_values(5, {kTokens, vocab_rows(vocab, kGrains)}))),
        targets(token_ids(6, {kTokens}, vocab)) {
    targets[3] = kIgnored;
    losses = vocab_cross_entropy(group, logits, targets, vocab);
    losses.backward(values(7, {kTokens}));
  }
  std::vector<at::Tensor> logits;
  at::Tensor targets, losses;
};

TEST(VocabCrossEntropy, OneResultOnEveryLayout) {
  for (const int64_t vocab : {13, 16, 5}) {  // of 5: a grain without a token
    const Loss expected(alone(), vocab);
    on_layouts([&](const TensorGroup& group) {
      const Loss got(group, vocab);
      EXPECT_TRUE(same_bits(got.losses, expected.losses)) << "alike on every rank";
      expect_own_bits(group, gradients_of(got.logits), gradients_of(expected.logits), "logits");
    });
  }
}

TEST(VocabCrossEntropy, IsThePlainFormula) {
  for (const int64_t vocab : {13, 16, 5}) {
    const Loss got(alone(), vocab);
    const at::Tensor logits = leaf(at::cat(got.logits, 1).narrow(1, 0, vocab).to(at::kDouble));
    const at::Tensor exact =
        at::cross_entropy_loss(logits, got.targets, {}, at::Reduction::None, kIgnored);
    exact.backward(values(7, {kTokens}).to(at::kDouble));
    // log s - z: the shift rounds once at the size of the logits, exp and s relatively, by
    // vocab + 4 roundings in all; log turns a relative error into an absolute one.
    const double largest = logits.detach().abs().max().item<double>();
    const double bound = (4 * largest + vocab + 8) * 0x1p-24;
    EXPECT_LE(share_of_bound(got.losses, exact.detach(), at::full({1}, bound, at::kDouble)), 1);
    const double seed = values(7, {kTokens}).abs().max().item<double>();
    EXPECT_LE(share_of_bound(at::cat(gradients_of(got.logits), 1).narrow(1, 0, vocab),
                             logits.grad(), at::full({1}, 2 * seed * bound, at::kDouble)),
              1);
  }
}

TEST(VocabCrossEntropy, AnotherOrderOfGrainsWouldShow) {
  const Loss got(alone(), 16);
  at::Tensor most = at::cat(got.logits, 1).amax(1, true).detach();
  std::vector<at::Tensor> parts;
  for (const at::Tensor& l : got.logits) parts.push_back(at::exp(l.detach() - most).sum(1));
  const at::Tensor tree = (parts[0] + parts[1]) + (parts[2] + parts[3]);
  EXPECT_FALSE(same_bits(((parts[0] + parts[1]) + parts[2]) + parts[3], tree));
}

TEST(VocabCrossEntropy, ATargetOutsideTheVocabularyIsRefused) {
  const auto logits = grain_values(5, {2, 4});
  for (const int64_t bad : {int64_t{13}, int64_t{-1}}) {
    const at::Tensor targets = at::tensor({int64_t{0}, bad});
    EXPECT_NE(test::message_of<UsageError>([&] {
                vocab_cross_entropy(alone(), logits, targets, kVocab);
              }).find(base::str("target ", bad, " is neither")),
              std::string::npos);
  }
}

TEST(WholeLogits, AreTheGrainsSideBySide) {
  const auto all = grain_values(5, {kTokens, 4});
  const at::Tensor expected = at::cat(all, 1).narrow(1, 0, kVocab).contiguous();
  on_layouts([&](const TensorGroup& group) {
    EXPECT_TRUE(
        same_bits(whole_logits(group, own_leaves(group, all), kVocab).contiguous(), expected));
  });
}

}  // namespace
}  // namespace lockstep::parallel
