#include "lockstep/plan/sum_plan.h"

#include <numeric>

#include "lockstep/base/error.h"
#include "tests/plan/property.h"
#include "tests/plan/tree_reference.h"

namespace lockstep::plan {
namespace {

/// One term a rank: rank r brings leaf r.
SumPlan one_term_a_rank(int ranks) {
  std::vector<std::vector<LeafRange>> terms;
  for (int rank = 0; rank < ranks; ++rank) terms.push_back({{rank, rank + 1}});
  return plan_sum(ranks, terms);
}

void expect_slices_cover_once(int64_t count, int ranks, int64_t alignment) {
  int64_t at = 0;
  int64_t longest = 0;
  int64_t shortest = count;
  for (int rank = 0; rank < ranks; ++rank) {
    const ElementRange slice = slice_of(count, ranks, rank, alignment);
    ASSERT_EQ(slice.lo, at);
    ASSERT_GE(slice.size(), 0);
    ASSERT_TRUE(slice.lo % alignment == 0 || slice.lo == count);
    at = slice.hi;
    longest = std::max(longest, slice.size());
    shortest = std::min(shortest, slice.size());
  }
  ASSERT_EQ(at, count);
  // Balanced: the last unit may be cut short by the end of the elements.
  ASSERT_LT(longest - shortest, 2 * alignment);
}

TEST(Slices, CoverEveryElementOnce) {
  for (const int64_t count : {0, 1, 15, 16, 17, 31, 48, 97, 1009}) {
    for (int ranks = 1; ranks <= 9; ++ranks) expect_slices_cover_once(count, ranks, 16);
  }
  EXPECT_EQ(slice_of(1, 3, 0).size(), 1);
  EXPECT_EQ(slice_of(1, 3, 2).size(), 0);
  EXPECT_EQ(slice_of(50, 3, 0), (ElementRange{0, 32}));
  EXPECT_EQ(slice_of(50, 3, 1), (ElementRange{32, 48}));
  EXPECT_EQ(slice_of(50, 3, 2), (ElementRange{48, 50}));
}

RC_GTEST_PROP(Slices, CoverEveryElementOnceUpTo512Ranks, ()) {
  expect_slices_cover_once(*rc::gen::inRange<int64_t>(0, int64_t{1} << 40),
                           *rc::gen::inRange(1, 513), *rc::gen::element<int64_t>(1, 16, 256));
}

TEST(SumPlan, OrdersTermsByLeafWhoeverBringsThem) {
  // Round-robin: rank 0 holds 0 3, rank 1 holds 1, rank 2 holds 2.
  const SumPlan plan = plan_sum(4, {{{0, 1}, {3, 4}}, {{1, 2}}, {{2, 3}}});
  std::vector<int> holders;
  for (const TermHolder& term : plan.terms) holders.push_back(term.rank);
  EXPECT_EQ(holders, (std::vector<int>{0, 1, 2, 0}));
  EXPECT_EQ(plan.additions, (std::vector<AddStep>{{0, 1}, {2, 3}, {0, 2}}));
}

TEST(SumPlan, RefusesLeavesBroughtTwiceAndNamesTheRanks) {
  try {
    plan_sum(6, {{{0, 2}}, {{2, 4}}, {{2, 3}, {4, 6}}});
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "canonical sum: rank 1 brings leaves [2,4) and rank 2 brings [2,3): a leaf must "
                 "be brought once.");
  }
  EXPECT_THROW(plan_sum(6, {{{0, 3}}, {{3, 6}}}), UsageError);
}

TEST(SumPlan, MayHaveNoTermAtAll) {
  const SumPlan plan = plan_sum(4, {{}, {}, {}});
  EXPECT_TRUE(plan.terms.empty());
  EXPECT_TRUE(plan.additions.empty());
  EXPECT_EQ(plan.ranks, 3);
}

TEST(DirectAllReduce, MovesTwiceTheBytesLessOneShare) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    const SumPlan plan = one_term_a_rank(ranks);
    for (const int64_t count : {0, 1, 17, 1009, 4096}) {
      int64_t total = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const int64_t slice = slice_of(count, ranks, rank).size();
        const int64_t bytes = direct_all_reduce_bytes(plan, rank, count, 4);
        EXPECT_EQ(bytes, 2 * (ranks - 1) * slice * 4);
        total += bytes;
      }
      EXPECT_EQ(total, 2 * (ranks - 1) * count * 4);
    }
  }
}

TEST(DirectAllReduce, CountsEveryTermHeldElsewhere) {
  // Rank 0 holds [0,1) [3,4), rank 1 [1,2), rank 2 [2,3). Slices of 40 elements: 16, 16, 8.
  const SumPlan plan = plan_sum(4, {{{0, 1}, {3, 4}}, {{1, 2}}, {{2, 3}}});
  EXPECT_EQ(direct_all_reduce_bytes(plan, 0, 40, 4), (2 + 2) * 16 * 4);
  EXPECT_EQ(direct_all_reduce_bytes(plan, 1, 40, 4), (3 + 2) * 16 * 4);
  EXPECT_EQ(direct_all_reduce_bytes(plan, 2, 40, 4), (3 + 2) * 8 * 4);
}

TEST(AllReduce, SmallTermsOfEveryRankTravelInline) {
  const SumPlan plan = one_term_a_rank(3);
  EXPECT_EQ(all_reduce_bytes(plan, 1, 64, 4), 2 * 256);  // 256 bytes: still inline
  EXPECT_EQ(all_reduce_bytes(plan, 1, 65, 4), direct_all_reduce_bytes(plan, 1, 65, 4));
  EXPECT_EQ(all_reduce_bytes(plan, 2, 1, 8), 2 * 8);

  // Two terms of rank 0 fill its descriptor with half as many elements, for all ranks alike.
  const SumPlan two = plan_sum(4, {{{0, 1}, {3, 4}}, {{1, 2}}, {{2, 3}}});
  EXPECT_EQ(all_reduce_bytes(two, 1, 32, 4), 3 * 128);
  EXPECT_EQ(all_reduce_bytes(two, 0, 32, 4), 2 * 128);
  EXPECT_EQ(all_reduce_bytes(two, 1, 33, 4), direct_all_reduce_bytes(two, 1, 33, 4));
  EXPECT_EQ(all_reduce_bytes(one_term_a_rank(1), 0, 4096, 4), 0);
}

TEST(ReduceScatterAndAllGather, MoveEachElementOnceFromEachPeer) {
  const std::vector<int64_t> counts = {5, 0, 7};
  const SumPlan plan = one_term_a_rank(3);
  EXPECT_EQ(direct_reduce_scatter_bytes(plan, 0, counts, 4), 2 * 5 * 4);
  EXPECT_EQ(direct_reduce_scatter_bytes(plan, 1, counts, 4), 0);
  EXPECT_EQ(direct_reduce_scatter_bytes(plan, 2, counts, 4), 2 * 7 * 4);
  EXPECT_EQ(direct_all_gather_bytes(0, counts, 4), 7 * 4);
  EXPECT_EQ(direct_all_gather_bytes(1, counts, 4), 12 * 4);
  EXPECT_EQ(direct_all_gather_bytes(2, counts, 4), 5 * 4);
}

}  // namespace
}  // namespace lockstep::plan
