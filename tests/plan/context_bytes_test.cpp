#include "lockstep/plan/context_bytes.h"

#include <gtest/gtest.h>

namespace lockstep::plan {
namespace {

constexpr int64_t kOfToken = 2 * 3 * 5 * 4;  // keys and values, n = 3, K = 5, fp32

TEST(ContextBytes, OfEqualSharesAreTheClosedForms) {
  for (const int ranks : {2, 4, 8}) {
    const ContextShape shape{.sequence = 64, .heads = 3, .width = 5};
    for (int rank = 0; rank < ranks; ++rank) {
      const ContextBytes bytes = context_bytes(shape, context_place(8, ranks, rank));
      EXPECT_EQ(bytes.forward, (ranks - 1) * (64 / ranks) * kOfToken);
      EXPECT_EQ(bytes.backward, bytes.forward + 64 * kOfToken);
    }
  }
}

TEST(ContextBytes, AShorterRunReadsMore) {
  const ContextShape shape{.sequence = 16, .heads = 3, .width = 5};
  const ContextBytes two = context_bytes(shape, context_place(4, 3, 0));
  const ContextBytes one = context_bytes(shape, context_place(4, 3, 1));
  EXPECT_EQ(two, (ContextBytes{8 * kOfToken, 24 * kOfToken}));
  EXPECT_EQ(one, (ContextBytes{12 * kOfToken, 28 * kOfToken}));
}

TEST(ContextBytes, OneRankMovesNothing) {
  EXPECT_EQ(context_bytes({.sequence = 16, .heads = 3, .width = 5}, context_place(4, 1, 0)),
            ContextBytes{});
}

}  // namespace
}  // namespace lockstep::plan
