#include "lockstep/plan/tensor_place.h"

#include <gtest/gtest.h>

#include <numeric>

#include "lockstep/base/error.h"

namespace lockstep::plan {
namespace {

TEST(TensorPlace, FourGrainsOnThreeRanks) {
  const TensorPlace place = place_of(4, 3, 1, true);
  EXPECT_EQ(place.by_rank, (std::vector<LeafRange>{{0, 2}, {2, 3}, {3, 4}}));
  EXPECT_EQ(place.local, (LeafRange{2, 3}));
  EXPECT_EQ(place.slices(), (LeafRange{2, 3})) << "divided sequence";
  EXPECT_EQ(place_of(4, 3, 1, false).slices(), (LeafRange{0, 4})) << "whole sequence";
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
      // Every leaf is in one term, and the additions make one sum of them.
      const SumPlan sum = grain_sum_plan(place);
      EXPECT_EQ(std::accumulate(sum.terms.begin(), sum.terms.end(), 0,
                                [](int n, const TermHolder& t) { return n + t.leaves.size(); }),
                grains);
      EXPECT_EQ(sum.additions.size() + 1, sum.terms.size());
    }
  }
}

TEST(TensorPlace, FewerGrainsThanRanksIsRefused) {
  try {
    place_of(2, 3, 0, false);
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("numerics.tensor_grains"), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep::plan
