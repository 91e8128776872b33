// How a rank folds its own leaves, with one context grain and with several.
#include <gtest/gtest.h>

#include <bit>

#include "lockstep/plan/leaf_rounds.h"
#include "tests/plan/tree_reference.h"

namespace lockstep::plan {
namespace {

LeafSchedule schedule_of(int grains, int data_ranks, int context_grains = 1,
                         int context_ranks = 1) {
  return divided_leaves(plan_leaves(grains, data_ranks, LeafAssignment::contiguous), context_grains,
                        context_ranks);
}

TEST(LocalFolds, FollowThePictureInTheHeader) {
  const LeafRounds folds = plan_local_folds(schedule_of(4, 1), 0);
  const std::vector<std::vector<RoundNode>> expected = {{{{0, 1}, 0, {}}},
                                                        {{{1, 2}, 1, {{0, 1}}}},
                                                        {{{2, 3}, 1, {}}},
                                                        {{{3, 4}, 2, {{1, 2}, {0, 1}}}}};
  EXPECT_EQ(folds.rounds, expected);
  EXPECT_EQ(folds.levels, 3);
  EXPECT_EQ(folds.kept, (std::vector<LeafRounds::Kept>{{{0, 4}, 0}}));
}

TEST(LocalFolds, NeedTheLevelsOfABinaryCounter) {
  for (int leaves = 1; leaves <= 600; ++leaves) {
    const LeafRounds folds = plan_local_folds(schedule_of(leaves, 1), 0);
    ASSERT_EQ(folds.levels, static_cast<int>(std::bit_width(static_cast<unsigned>(leaves))));
  }
}

TEST(LocalFolds, EndInTheBitsOfTheTree) {
  for (int leaves = 1; leaves <= 40; ++leaves) {
    const auto values =
        unlike_values<float>(static_cast<size_t>(leaves), static_cast<unsigned>(leaves));
    ASSERT_EQ(bits(folded(values, {0, leaves})), bits(reference_sum(values, 0, leaves))) << leaves;
  }
}

// Every rank folds its grains of its leaves as they come; what is left are its terms, and their sum
// is that of the tree.
TEST(LocalFolds, OfContextGrainsAreTheTermsAndTheBitsOfTheTree) {
  for (const int grains : {1, 2, 3, 4, 6}) {
    for (const int contexts : {1, 2, 3, 4}) {
      const auto values = unlike_values<float>(static_cast<size_t>(grains * contexts),
                                               static_cast<unsigned>(grains));
      for (int data = 1; data <= grains; ++data) {
        for (int sharing = 1; sharing <= contexts; ++sharing) {
          const LeafSchedule leaves = schedule_of(grains, data, contexts, sharing);
          std::vector<std::vector<LeafRange>> terms;
          std::vector<std::pair<LeafRange, float>> sums;
          for (int rank = 0; rank < leaves.ranks; ++rank) {
            const LeafRounds folds = plan_local_folds(leaves, rank);
            std::vector<float> levels(static_cast<size_t>(folds.levels));
            ASSERT_EQ(folds.rounds.size(), leaves.leaves_of(rank).size());
            for (const auto& round : folds.rounds) {
              // All grains of a leaf arrive before the first of them is added to anything.
              for (const RoundNode& node : round) {
                levels[static_cast<size_t>(node.level)] =
                    values[static_cast<size_t>(node.leaves.lo)];
              }
              for (const RoundNode& node : round) {
                for (const AddStep step : node.additions) {
                  levels[static_cast<size_t>(step.into)] += levels[static_cast<size_t>(step.from)];
                }
              }
            }
            std::vector<LeafRange>& kept = terms.emplace_back();
            for (const LeafRounds::Kept& term : folds.kept) {
              kept.push_back(term.leaves);
              sums.emplace_back(term.leaves, levels[static_cast<size_t>(term.level)]);
            }
            ASSERT_EQ(kept, leaves.terms_of(rank));
          }
          const SumPlan plan = plan_sum(leaves.sum_leaves(), terms);
          std::sort(sums.begin(), sums.end());
          for (const AddStep step : plan.additions) {
            sums[static_cast<size_t>(step.into)].second +=
                sums[static_cast<size_t>(step.from)].second;
          }
          ASSERT_EQ(bits(sums[0].second), bits(reference_sum(values, 0, grains * contexts)))
              << grains << " leaves of " << contexts << " grains on " << data << " x " << sharing;
        }
      }
    }
  }
}

// Context ranks take part in the reductions of data-parallel ones: one term each where each has one
// grain.
TEST(LocalFolds, AGrainOnEachContextRankIsOneTerm) {
  const LeafSchedule leaves = schedule_of(4, 2, 2, 2);
  ASSERT_EQ(leaves.ranks, 4);
  EXPECT_EQ(leaves.leaves_of(1), (std::vector<int>{0, 1}));
  EXPECT_EQ(leaves.terms_of(0), (std::vector<LeafRange>{{0, 2}}));
  EXPECT_EQ(leaves.terms_of(1), (std::vector<LeafRange>{{4, 6}}));
  EXPECT_EQ(leaves.terms_of(2), (std::vector<LeafRange>{{2, 4}}));
  EXPECT_EQ(leaves.terms_of(3), (std::vector<LeafRange>{{6, 8}}));
}

}  // namespace
}  // namespace lockstep::plan
