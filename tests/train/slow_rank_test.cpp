#include "lockstep/train/slow_rank.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(SlowRank, IsFoundByItsOwnWork) {
  const auto slow = find_slow_rank({1.0, 0.9, 3.2, 1.1});
  ASSERT_TRUE(slow.has_value());
  EXPECT_EQ(slow->rank, 2);
  EXPECT_EQ(slow->seconds, 3.2);
  EXPECT_EQ(slow->others, 1.0);
  EXPECT_EQ(describe(*slow, 10),
            "rank 2 is slow: 320.0 ms of its own work a step, the others 100.0 ms");
}

TEST(SlowRank, OfTwoRanksItIsTheOneWithMore) {
  EXPECT_EQ(find_slow_rank({1.0, 2.0})->rank, 1);
  EXPECT_EQ(find_slow_rank({2.0, 1.0})->rank, 0);
}

TEST(SlowRank, OrdinaryDifferencesAndALoneRankAreNone) {
  EXPECT_FALSE(find_slow_rank({1.0, 1.4, 1.2}).has_value());
  EXPECT_FALSE(find_slow_rank({0.0, 0.0}).has_value());
  EXPECT_FALSE(find_slow_rank({5.0}).has_value());
  EXPECT_FALSE(find_slow_rank({}).has_value());
}

}  // namespace
}  // namespace lockstep
