// The bytes that a decoder's layers move are those of the plan, forward and backward.
#include "lockstep/parallel/tensor/column_linear.h"
#include "lockstep/parallel/tensor/row_linear.h"
#include "lockstep/parallel/tensor/slice_norm.h"
#include "lockstep/parallel/tensor/vocab_cross_entropy.h"
#include "lockstep/parallel/tensor/vocab_embedding.h"
#include "lockstep/parallel/tensor/vocab_head.h"
#include "lockstep/plan/kernel_blocks.h"
#include "lockstep/plan/tensor_bytes.h"
#include "tests/parallel/grains.h"

namespace lockstep::parallel {
namespace {

// 24 tokens of width 7: no slice is a multiple of anything.
constexpr int64_t kBatch = 2, kSlice = 3, kWidth = 7, kInner = 5, kVocab = 13, kLayers = 2;

/// Layers without what lies between the two linear maps of each.
at::Tensor losses(const TensorGroup& group, const ColumnOptions& options, int64_t slice = kSlice) {
  const at::Tensor gain = leaf(at::ones({kWidth})), bias = leaf(at::zeros({kWidth}));
  const at::Tensor ids = at::arange(kGrains * kBatch * slice).remainder(kVocab);
  const auto table = own_leaves(group, grain_values(1, {vocab_rows(kVocab, kGrains), kWidth}));
  at::Tensor x = vocab_embedding(group, ids.view({kGrains, kBatch, slice}), table,
                                 leaf(values(2, {kGrains * slice, kWidth})), kVocab);
  for (int64_t branch = 0; branch < 2 * kLayers; ++branch) {
    const auto h = column_linear(group, layer_norm(group, x, gain, bias, 1e-5),
                                 own_leaves(group, grain_values(3, {kInner, kWidth})),
                                 own_leaves(group, grain_values(4, {kInner})), options);
    x = x + row_linear(group, h, own_leaves(group, grain_values(5, {kWidth, kInner})), bias);
  }
  if (group.arithmetic.fused) {
    return head_losses(group, layer_norm(group, x, gain, bias, 1e-5), table, ids, kVocab);
  }
  auto logits = column_linear(group, layer_norm(group, x, gain, bias, 1e-5), table, {}, options);
  for (at::Tensor& l : logits) l = l.flatten(0, 2);
  return vocab_cross_entropy(group, logits, ids, kVocab);
}

TEST(TensorTraffic, LedgerEqualsThePlan) {
  for (const bool sequence : {false, true}) {
    for (const bool gather_again : {false, true}) {
      on_ranks({2, 3, 4}, [&](ProcessGroup& ranks) {
        const TensorGroup group = shared_by(ranks, sequence);
        const plan::TensorBytes planned = plan::tensor_bytes({.batch = kBatch,
                                                              .sequence = kGrains * kSlice,
                                                              .width = kWidth,
                                                              .layers = kLayers,
                                                              .gather_again = gather_again},
                                                             group.place);
        ranks.reset_totals();
        const at::Tensor result = losses(group, {.gather_again = gather_again}).sum();
        EXPECT_EQ(ranks.totals().bytes, planned.forward) << "rank " << ranks.rank();
        ranks.reset_totals();
        result.backward();
        EXPECT_EQ(ranks.totals().bytes, planned.backward) << "rank " << ranks.rank();
      });
    }
  }
}

// Head and loss in one: what meets meets for a block of tokens at a time, and dx travels in
// forward.
TEST(TensorTraffic, LedgerEqualsThePlanOfOwnKernels) {
  constexpr int64_t kLongSlice = 163;
  for (const bool sequence : {false, true}) {
    on_ranks({2, 3, 4}, [&](ProcessGroup& ranks) {
      TensorGroup group = shared_by(ranks, sequence);
      group.arithmetic = {.fused = true, .compute = {}};
      const plan::TensorBytes planned = plan::tensor_bytes({.batch = kBatch,
                                                            .sequence = kGrains * kLongSlice,
                                                            .width = kWidth,
                                                            .layers = kLayers,
                                                            .loss_rows = plan::kLossRows},
                                                           group.place);
      ranks.reset_totals();
      const at::Tensor result = losses(group, {}, kLongSlice).sum();
      EXPECT_EQ(ranks.totals().bytes, planned.forward) << "rank " << ranks.rank();
      ranks.reset_totals();
      result.backward();
      EXPECT_EQ(ranks.totals().bytes, planned.backward) << "rank " << ranks.rank();
    });
  }
}

}  // namespace
}  // namespace lockstep::parallel
