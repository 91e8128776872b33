#include "lockstep/plan/sum_tree.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "lockstep/base/error.h"
#include "tests/plan/property.h"
#include "tests/plan/tree_reference.h"

namespace lockstep::plan {
namespace {

TEST(SumTree, SplitsAtTheLargestPowerOfTwoBelowTheSize) {
  EXPECT_EQ(split(0, 2), 1);
  EXPECT_EQ(split(0, 3), 2);
  EXPECT_EQ(split(0, 4), 2);
  EXPECT_EQ(split(0, 5), 4);
  EXPECT_EQ(split(0, 6), 4);
  EXPECT_EQ(split(4, 6), 5);
  EXPECT_EQ(split(10, 19), 18);
}

TEST(SumTree, MaximalSubtreesOfThePictureInTheHeader) {
  const std::vector<LeafRange> expected = {{1, 2}, {2, 4}, {4, 5}};
  EXPECT_EQ(maximal_subtrees(6, {1, 5}), expected);
  EXPECT_EQ(maximal_subtrees(6, {0, 6}), (std::vector<LeafRange>{{0, 6}}));
  EXPECT_EQ(maximal_subtrees(6, {4, 6}), (std::vector<LeafRange>{{4, 6}}));
  EXPECT_TRUE(maximal_subtrees(6, {3, 3}).empty());
  EXPECT_TRUE(maximal_subtrees(0, {0, 0}).empty());
}

void collect_nodes(LeafRange node, std::set<LeafRange>& nodes) {
  nodes.insert(node);
  if (node.size() < 2) return;
  const int mid = split(node.lo, node.hi);
  collect_nodes({node.lo, mid}, nodes);
  collect_nodes({mid, node.hi}, nodes);
}

// All runs of all trees: the terms are nodes that cover the run once, and no node of the run is
// larger than the term it lies in.
TEST(SumTree, MaximalSubtreesCoverTheRunAndAreMaximal) {
  for (int leaves = 1; leaves <= 40; ++leaves) {
    std::set<LeafRange> nodes;
    collect_nodes({0, leaves}, nodes);
    for (int lo = 0; lo < leaves; ++lo) {
      for (int hi = lo + 1; hi <= leaves; ++hi) {
        const LeafRange held{lo, hi};
        const std::vector<LeafRange> terms = maximal_subtrees(leaves, held);
        int at = lo;
        for (const LeafRange term : terms) {
          ASSERT_EQ(term.lo, at);
          ASSERT_TRUE(nodes.contains(term));
          at = term.hi;
        }
        ASSERT_EQ(at, hi);
        for (const LeafRange node : nodes) {
          if (!held.contains(node)) continue;
          ASSERT_TRUE(std::any_of(terms.begin(), terms.end(),
                                  [&](LeafRange term) { return term.contains(node); }));
        }
      }
    }
  }
}

TEST(SumTree, EvaluationAddsInTheOrderOfTheTree) {
  // ((0 + 1) + (2,4)) + (4,6)
  const std::vector<AddStep> expected = {{0, 1}, {0, 2}, {0, 3}};
  EXPECT_EQ(evaluation(6, {{0, 1}, {1, 2}, {2, 4}, {4, 6}}), expected);
  // (0,2) + (2 + 3), then 4 + 5, then both
  const std::vector<AddStep> right_first = {{1, 2}, {0, 1}, {3, 4}, {0, 3}};
  EXPECT_EQ(evaluation(6, {{0, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}}), right_first);
  EXPECT_TRUE(evaluation(6, {{0, 6}}).empty());
  EXPECT_TRUE(evaluation(6, {}).empty());
}

TEST(SumTree, AbsentLeavesAreSkipped) {
  const std::vector<AddStep> expected = {{0, 1}};
  EXPECT_EQ(evaluation(6, {{1, 2}, {5, 6}}), expected);
  EXPECT_TRUE(evaluation(6, {{3, 4}}).empty());

  // A zero in place of the absent leaf would lose the sign.
  SumPlan plan = plan_sum(4, {{{1, 2}}, {}, {{3, 4}}});
  EXPECT_TRUE(std::signbit(evaluated<float>({1, -0.0f, 1, -0.0f}, plan)));
}

TEST(SumTree, RefusesWhatIsNoSetOfNodes) {
  EXPECT_THROW(evaluation(6, {{1, 3}}), UsageError);          // straddles (0,2) and (2,4)
  EXPECT_THROW(evaluation(6, {{0, 3}}), UsageError);          // no whole node
  EXPECT_THROW(evaluation(6, {{0, 2}, {1, 2}}), UsageError);  // overlap
  EXPECT_THROW(evaluation(6, {{2, 4}, {0, 2}}), UsageError);  // order
  EXPECT_THROW(evaluation(6, {{4, 8}}), UsageError);          // outside
  EXPECT_THROW(evaluation(6, {{2, 2}}), UsageError);          // empty
  EXPECT_THROW(evaluation(0, {{0, 1}}), UsageError);
}

// Leaves dealt to ranks in any way at all: who holds what never shows in the sum.
RC_GTEST_PROP(SumTree, AnyHoldersGiveTheBitsOfTheTree, ()) {
  const int leaves = *rc::gen::inRange(1, 41);
  const int ranks = *rc::gen::inRange(1, 10);
  std::vector<std::vector<LeafRange>> terms(static_cast<size_t>(ranks));
  for (int lo = 0; lo < leaves;) {
    const int hi = *rc::gen::inRange(lo + 1, leaves + 1);
    auto& mine = terms[static_cast<size_t>(*rc::gen::inRange(0, ranks))];
    for (const LeafRange term : maximal_subtrees(leaves, {lo, hi})) mine.push_back(term);
    lo = hi;
  }
  const auto values =
      unlike_values<float>(static_cast<size_t>(leaves), *rc::gen::arbitrary<unsigned>());
  RC_ASSERT(bits(evaluated(values, plan_sum(leaves, terms))) ==
            bits(reference_sum(values, 0, leaves)));
}

// The control: what these tests guard against does change bits, and is seen.
TEST(SumTree, RankOrderIsAnotherSum) {
  int unlike_on_four_ranks = 0;
  int unlike_on_three_ranks = 0;
  for (unsigned seed = 0; seed < 50; ++seed) {
    const auto values = unlike_values<float>(8, seed);
    const auto run = [&](int lo, int hi) { return folded(values, {lo, hi}); };
    const float sum = reference_sum(values, 0, 8);
    const float four = ((run(0, 2) + run(2, 4)) + run(4, 6)) + run(6, 8);
    // Three leaves are no node: one sum a rank instead of its maximal whole subtrees.
    const float three = (run(0, 3) + run(3, 6)) + run(6, 8);
    if (bits(four) != bits(sum)) ++unlike_on_four_ranks;
    if (bits(three) != bits(sum)) ++unlike_on_three_ranks;
  }
  EXPECT_GT(unlike_on_four_ranks, 10);
  EXPECT_GT(unlike_on_three_ranks, 10);
}

}  // namespace
}  // namespace lockstep::plan
