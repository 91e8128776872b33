#include "lockstep/plan/ring_steps.h"

#include <gtest/gtest.h>

#include <set>

namespace lockstep::plan {
namespace {

constexpr int kMost = 16;  // grains

/// Of each rank.
std::vector<std::vector<RingStep>> all_steps(int grains, int ranks) {
  std::vector<std::vector<RingStep>> steps;
  for (int r = 0; r < ranks; ++r) steps.push_back(ring_steps(context_place(grains, ranks, r)));
  return steps;
}

TEST(RingSteps, FourGrainsOnThreeRanks) {
  const auto steps = all_steps(4, 3);
  using Pairs = std::vector<GrainPair>;
  EXPECT_EQ(steps[0][0].pairs, (Pairs{{1, 1}, {0, 0}, {1, 0}}));
  EXPECT_EQ(steps[0][1].pairs, (Pairs{{0, 3}, {1, 3}}));
  EXPECT_EQ(steps[0][2].pairs, (Pairs{{0, 2}, {1, 2}}));
  EXPECT_EQ(steps[0][3].pairs, (Pairs{{0, 1}}));
  EXPECT_EQ(steps[1][1].pairs, (Pairs{{2, 1}, {2, 0}}));
  EXPECT_EQ(steps[1][1].visitor, 0);
  EXPECT_EQ(steps[2][3].pairs, Pairs{});
  EXPECT_EQ(steps[2][3].visitor, 2) << "at home again";
}

TEST(RingSteps, AQueryMeetsKeysDownwardsFromItsOwn) {
  for (int grains = 1; grains <= kMost; ++grains) {
    for (int ranks = 1; ranks <= grains; ++ranks) {
      std::vector<std::vector<int>> met(static_cast<size_t>(grains));
      for (const auto& of_rank : all_steps(grains, ranks)) {
        for (const RingStep& step : of_rank) {
          for (const GrainPair pair : step.pairs) met[pair.query].push_back(pair.key);
        }
      }
      for (int i = 0; i < grains; ++i) {
        ASSERT_EQ(static_cast<int>(met[i].size()), grains);
        for (int m = 0; m < grains; ++m) {
          ASSERT_EQ(met[i][m], (i + grains - m) % grains)
              << grains << " grains, " << ranks << " ranks, query " << i;
        }
      }
    }
  }
}

// The gradients of a run visit with it: in step s they are s ranks on.
TEST(RingSteps, AKeyMeetsQueriesUpwardsFromItsOwn) {
  for (int grains = 1; grains <= kMost; ++grains) {
    for (int ranks = 1; ranks <= grains; ++ranks) {
      const auto steps = all_steps(grains, ranks);
      std::vector<std::vector<int>> met(static_cast<size_t>(grains));
      for (int home = 0; home < ranks; ++home) {
        for (int s = 0; s <= ranks; ++s) {
          const RingStep& step = steps[(home + s) % ranks][s];
          ASSERT_EQ(step.visitor, home);
          for (const GrainPair pair : step.pairs) met[pair.key].push_back(pair.query);
        }
      }
      for (int j = 0; j < grains; ++j) {
        ASSERT_EQ(static_cast<int>(met[j].size()), grains);
        for (int m = 0; m < grains; ++m) {
          ASSERT_EQ(met[j][m], (j + m) % grains)
              << grains << " grains, " << ranks << " ranks, key " << j;
        }
      }
    }
  }
}

// Half-grain a of 2 C sees half-grain b if b <= a: grain c has halves c and 2 C - 1 - c.
TEST(RingSteps, EveryGrainDoesItsShare) {
  for (int grains = 1; grains <= kMost; ++grains) {
    const auto half = [&](int grain, int which) {
      return which == 0 ? grain : 2 * grains - 1 - grain;
    };
    std::set<std::pair<int, int>> seen;
    for (int i = 0; i < grains; ++i) {
      int blocks = 0;
      for (int j = 0; j < grains; ++j) {
        for (const HalfPair pair : half_pairs({i, j})) {
          const int a = half(i, pair.query), b = half(j, pair.key);
          EXPECT_LE(b, a) << "above the diagonal";
          EXPECT_EQ(pair.diagonal, a == b);
          EXPECT_TRUE(seen.insert({a, b}).second) << "twice";
          ++blocks;
        }
      }
      EXPECT_EQ(blocks, 2 * grains + 1);
    }
    EXPECT_EQ(static_cast<int>(seen.size()), grains * (2 * grains + 1)) << "all below the diagonal";
  }
}

}  // namespace
}  // namespace lockstep::plan
