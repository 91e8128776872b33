#include "lockstep/plan/tensor_place.h"

#include <gtest/gtest.h>

namespace lockstep::plan {
namespace {

TEST(TensorPlace, FourGrainsOnThreeRanks) {
  const TensorPlace place = place_of(4, 3, 1, true);
  EXPECT_EQ(place.by_rank, (std::vector<LeafRange>{{0, 2}, {2, 3}, {3, 4}}));
  EXPECT_EQ(place.local, (LeafRange{2, 3}));
}

TEST(TensorPlace, RunsCoverTheGrainsOnceAndDifferByOneAtMost) {
  for (int grains = 1; grains <= 40; ++grains) {
    for (int ranks = 1; ranks <= grains; ++ranks) {
      const TensorPlace place = place_of(grains, ranks, ranks - 1, false);
      ASSERT_EQ(static_cast<int>(place.by_rank.size()), ranks);
      int next = 0;
      for (const LeafRange run : place.by_rank) {
        EXPECT_EQ(run.lo, next);
        EXPECT_GE(run.size(), grains / ranks);
        EXPECT_LE(run.size(), grains / ranks + (grains % ranks != 0 ? 1 : 0));
        EXPECT_LE(run.size(), place.by_rank.front().size()) << "longer runs first";
        next = run.hi;
      }
      EXPECT_EQ(next, grains);
    }
  }
}

}  // namespace
}  // namespace lockstep::plan
