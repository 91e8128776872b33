// An all-reduce is exactly a reduce-scatter and an all-gather.

#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "tests/plan/collective_cases.h"
#include "tests/plan/pictures.h"

namespace lockstep::plan {
namespace {

/// The slices that an all-reduce of `count` elements deals out to its ranks.
std::vector<int64_t> slices(int64_t count, int ranks) {
  std::vector<int64_t> counts;
  for (int rank = 0; rank < ranks; ++rank) counts.push_back(slice_of(count, ranks, rank).size());
  return counts;
}

/// Rounds [from, to) of a plan as text, counted from 0.
std::string rounds(CollectivePlan plan, int from, int to) {
  for (RankSteps& steps : plan.by_rank) {
    std::erase_if(steps.rounds, [&](const CollectiveRound& round) {
      return round.number < from || round.number >= to;
    });
    for (CollectiveRound& round : steps.rounds) round.number -= from;
  }
  return to_text(plan);
}

TEST(AllReduce, IsTheStepsOfAReduceScatterThenThoseOfAnAllGather) {
  for (const Algorithm algorithm : {Algorithm::ring, Algorithm::direct}) {
    for (int ranks = 1; ranks <= 17; ++ranks) {
      for (const int64_t count : {int64_t{16} * ranks, int64_t{1009}}) {
        const CollectivePlan whole = plan_all_reduce(algorithm, ranks, count);
        const CollectivePlan scatter = plan_reduce_scatter(algorithm, slices(count, ranks));
        const CollectivePlan gather = plan_all_gather(algorithm, slices(count, ranks));
        const int half = num_rounds(scatter);
        EXPECT_EQ(rounds(whole, 0, half), to_text(scatter))
            << name_of(algorithm) << ", " << ranks << " ranks, " << count;
        EXPECT_EQ(rounds(whole, half, half + num_rounds(gather)), to_text(gather))
            << name_of(algorithm) << ", " << ranks << " ranks, " << count;
        EXPECT_EQ(num_rounds(whole), half + num_rounds(gather));
      }
    }
  }
}

/// Who sends what to whom in a round, seen from the senders or, backwards, from the receivers.
std::string moves(const CollectivePlan& plan, int number, Direction seen_from) {
  std::string text;
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    for (const CollectiveRound& round : plan.by_rank[static_cast<size_t>(rank)].rounds) {
      if (round.number != number) continue;
      for (const Transfer& transfer : round.transfers) {
        if (transfer.direction != seen_from) continue;
        text += base::str(rank, " ", transfer.peer, " [", transfer.place.range.lo, ",",
                          transfer.place.range.hi, ")\n");
      }
    }
  }
  return text;
}

/// Halving leaves slices in another order than ranks have: the reduce-scatter ends, and the
/// all-gather begins, with a round that moves them to their owners and back. Between the two halves
/// of an all-reduce both are left out.
TEST(AllReduce, OfHalvingSparesTheMoveToTheOwnersAndBack) {
  for (const int ranks : {2, 4, 8, 16, 32}) {
    const int levels = std::countr_zero(static_cast<unsigned>(ranks));
    const int move = ranks > 2 ? 1 : 0;
    const int64_t count = int64_t{16} * ranks;
    const CollectivePlan whole = plan_all_reduce(Algorithm::halving, ranks, count);
    const CollectivePlan scatter = plan_reduce_scatter(Algorithm::halving, slices(count, ranks));
    const CollectivePlan gather = plan_all_gather(Algorithm::halving, slices(count, ranks));
    EXPECT_EQ(rounds(whole, 0, levels), rounds(scatter, 0, levels)) << ranks;
    EXPECT_EQ(rounds(whole, levels, 2 * levels), rounds(gather, move, move + levels)) << ranks;
    EXPECT_EQ(num_rounds(whole), 2 * levels);
    EXPECT_EQ(num_rounds(scatter), levels + move);
    EXPECT_EQ(num_rounds(gather), levels + move);
    if (move == 0) continue;
    EXPECT_EQ(moves(scatter, levels, Direction::send), moves(gather, 0, Direction::receive));
    EXPECT_FALSE(moves(scatter, levels, Direction::send).empty());
  }
}

/// Terms that no sum of three is exact for.
float value(int term, int64_t element) {
  return 1.0F / static_cast<float>(1 + term * 7 + element % 97) * (element % 2 == 0 ? 1.0F : -1e3F);
}

uint32_t bits_of(float number) { return std::bit_cast<uint32_t>(number); }

TEST(AllReduce, HasTheBitsOfAReduceScatterAndAnAllGather) {
  for (const Algorithm algorithm : algorithms_of(Collective::reduce_scatter)) {
    for (int ranks = 1; ranks <= 13; ++ranks) {
      const int64_t count = 16 * ranks + 5;
      const std::vector<int64_t> counts = slices(count, ranks);
      Execution<float> whole(plan_all_reduce(algorithm, ranks, count), value);
      Execution<float> scatter(plan_reduce_scatter(algorithm, counts), value);
      const auto slice_sum = [&](int term, int64_t element) {
        const ElementRange slice = slice_of(count, ranks, term);
        return scatter.at(term, {kResult, slice})[static_cast<size_t>(element - slice.lo)];
      };
      Execution<float> gather(plan_all_gather(algorithm, counts), slice_sum);
      for (int rank = 0; rank < ranks; ++rank) {
        const std::vector<float> want = whole.at(rank, {kResult, {0, count}});
        const std::vector<float> have = gather.at(rank, {kResult, {0, count}});
        for (size_t i = 0; i < want.size(); ++i) {
          ASSERT_EQ(bits_of(have[i]), bits_of(want[i]))
              << name_of(algorithm) << ", rank " << rank << " of " << ranks << ", element " << i;
        }
      }
    }
  }
}

TEST(AllReduce, PicturesInTheDocumentArePlans) {
  const std::vector<int64_t> counts(4, 16);
  expect_picture("all_reduce.md", plan_all_reduce(Algorithm::ring, 4, 64));
  expect_picture("all_reduce.md", plan_reduce_scatter(Algorithm::ring, counts));
  expect_picture("all_reduce.md", plan_all_gather(Algorithm::ring, counts));
}

}  // namespace
}  // namespace lockstep::plan
