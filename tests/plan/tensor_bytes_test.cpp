#include "lockstep/plan/tensor_bytes.h"

#include <gtest/gtest.h>

namespace lockstep::plan {
namespace {

// Of layers alone: what a layer adds.
int64_t layer_bytes(TensorShape shape, const TensorPlace& place) {
  shape.embeds = shape.heads = false;
  shape.layers = 1;
  const TensorBytes bytes = tensor_bytes(shape, place);
  return bytes.forward + bytes.backward;
}

TEST(TensorBytes, ALayerMovesTheClosedForms) {
  for (const int ranks : {2, 4, 8}) {
    // Slices of every rank are whole multiples of 16 elements.
    const TensorShape shape{.batch = 2, .sequence = 64, .width = 128, .norm_bias = true};
    const int64_t stream = 2 * 64 * 128 * 4;
    const int64_t share = 8 * (ranks - 1) * stream / ranks;
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(layer_bytes(shape, place_of(8, ranks, rank, false)), share);
      // Two norms, each an all-reduce of gain and bias.
      const int64_t norms = 2 * 2 * (ranks - 1) * (2 * 128 * 4) / ranks;
      EXPECT_EQ(layer_bytes(shape, place_of(8, ranks, rank, true)), share + norms);
      TensorShape again = shape;
      again.gather_again = true;
      EXPECT_EQ(layer_bytes(again, place_of(8, ranks, rank, true)), share / 8 * 10 + norms);
      EXPECT_EQ(layer_bytes(again, place_of(8, ranks, rank, false)), share) << "nothing to gather";
      TensorShape twice = shape;
      twice.recompute_blocks = true;
      EXPECT_EQ(layer_bytes(twice, place_of(8, ranks, rank, false)), share / 2 * 3);
    }
  }
}

TEST(TensorBytes, OneRankMovesNothing) {
  const TensorShape shape{.batch = 2, .sequence = 8, .width = 16, .layers = 3};
  EXPECT_EQ(tensor_bytes(shape, place_of(4, 1, 0, true)), TensorBytes{});
}

}  // namespace
}  // namespace lockstep::plan
