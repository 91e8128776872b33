// Rows of a table with their positions, against LibTorch's operators.
#include "lockstep/fused/embedding.h"

#include "lockstep/base/error.h"
#include "lockstep/torch_inside/first_touch.h"
#include "tests/fused/twin.h"

namespace lockstep::fused {
namespace {

at::Tensor ids_of(at::IntArrayRef shape, int64_t rows) {
  const base::RandomKey key(9);
  at::Tensor ids = torch::empty(shape, at::kLong);
  for (int64_t i = 0; i < ids.numel(); ++i) {
    ids.data_ptr<int64_t>()[i] =
        static_cast<int64_t>(key.below(static_cast<uint64_t>(i), static_cast<uint64_t>(rows)));
  }
  return ids;
}

TEST(FusedEmbedding, HasTheBitsOfAGatherAndASum) {
  constexpr int64_t kRows = 7, kSamples = 4, kSequence = 9;
  for (const int64_t width : kSizes) {
    for (const bool with_positions : {true, false}) {
      const at::Tensor ids = ids_of({kSamples, kSequence}, kRows);
      const at::Tensor table = leaf(values(1, {kRows, width})), table2 = leaf(table);
      at::Tensor positions, positions2;
      if (with_positions) {
        positions = leaf(values(2, {kSequence + 2, width}));
        positions2 = twin_of(positions);
      }
      const at::Tensor dx = values(3, {kSamples, kSequence, width});
      const at::Tensor x = fused::embedding(ids, table, positions);
      x.backward(dx);
      at::Tensor expected = at::embedding(table2, ids);
      expected.backward(dx);
      if (with_positions) {
        expected = expected + positions.narrow(0, 0, kSequence);
        positions2.narrow(0, 0, kSequence).expand(dx.sizes()).backward(dx.to(at::kDouble));
        // As many additions as samples.
        const at::Tensor bound = kRound * kSamples * dx.abs().sum(0).to(at::kDouble);
        expect_within(positions.grad(), positions2.grad(),
                      torch::cat({bound, torch::zeros({2, width}, at::kDouble)}));
      }
      EXPECT_TRUE(same_bits(x, expected));
      EXPECT_TRUE(same_bits(table.grad(), table2.grad()));
    }
  }
}

TEST(FusedEmbedding, OfNoTokens) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{0, 3}, {2, 0}}) {
    const at::Tensor table = leaf(values(1, {5, 4})), positions = leaf(values(2, {3, 4}));
    const at::Tensor x = fused::embedding(torch::empty(shape, at::kLong), table, positions);
    x.sum().backward();
    EXPECT_EQ(x.sizes(), (std::vector<int64_t>{shape[0], shape[1], 4}));
    EXPECT_TRUE(same_bits(table.grad(), torch::zeros({5, 4})));
    EXPECT_TRUE(same_bits(positions.grad(), torch::zeros({3, 4})));
  }
}

TEST(FusedEmbedding, WhatIsFrozenGetsNoGradient) {
  const at::Tensor ids = ids_of({2, 3}, 5);
  const at::Tensor table = leaf(values(1, {5, 4})), positions = values(2, {3, 4});
  fused::embedding(ids, table, positions).sum().backward();
  EXPECT_TRUE(table.grad().defined());
  const at::Tensor frozen = values(1, {5, 4}), trained = leaf(positions);
  fused::embedding(ids, frozen, trained).sum().backward();
  EXPECT_FALSE(frozen.grad().defined());
  EXPECT_TRUE(same_bits(trained.grad(), torch::full({3, 4}, 2.0f)));
}

TEST(FusedEmbedding, ReadsATableWhoseMemoryIsReleased) {
  const at::Tensor ids = ids_of({2, 3}, 5), table = values(1, {5, 4});
  torch_inside::ReleasableStorage* of_unit = nullptr;
  torch_inside::ReleasableStorage unit(20, [&] {
    of_unit->allocate();
    of_unit->flat().copy_(table.view({-1}));
  });
  of_unit = &unit;
  at::Tensor released = leaf(table);
  released.set_data(unit.watched({5, 4}, 0));
  EXPECT_TRUE(same_bits(fused::embedding(ids, released, {}), at::embedding(table, ids)));
}

TEST(FusedEmbedding, RefusesIdsThatAreNoRowsAndPositionsThatEnd) {
  const at::Tensor table = values(1, {5, 4}), positions = values(2, {2, 4});
  EXPECT_THROW(fused::embedding(torch::full({1, 2}, 5, at::kLong), table, {}), UsageError);
  EXPECT_THROW(fused::embedding(torch::full({1, 2}, -1, at::kLong), table, {}), UsageError);
  EXPECT_THROW(fused::embedding(torch::zeros({1, 3}, at::kLong), table, positions), UsageError);
  EXPECT_THROW(fused::embedding(torch::zeros({1, 2}, at::kInt), table, {}), UsageError);
}

}  // namespace
}  // namespace lockstep::fused
