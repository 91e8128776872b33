#include "lockstep/state/arrivals.h"

#include <gtest/gtest.h>

namespace lockstep::state {
namespace {

using Promise = Arrivals::Promise;

TEST(Arrivals, OnceCompletesABucketAtItsLastUse) {
  Arrivals arrivals({0, 0, 1}, 3, Promise::once);
  for (int backward = 0; backward < 2; ++backward) {
    arrivals.begin();
    EXPECT_EQ(arrivals.arrived(0), -1);
    EXPECT_EQ(arrivals.arrived(2), 1);
    EXPECT_EQ(arrivals.arrived(1), 0);
    EXPECT_TRUE(arrivals.complete(0));
    EXPECT_EQ(arrivals.end(), (std::vector<int>{2})) << "a bucket without uses ends with all";
  }
}

TEST(Arrivals, LearnedWaitsOnceForTheEnd) {
  Arrivals arrivals({0, 1}, 2, Promise::learned);
  arrivals.begin();
  EXPECT_EQ(arrivals.arrived(1), -1);
  EXPECT_EQ(arrivals.arrived(1), -1);
  EXPECT_EQ(arrivals.arrived(0), -1);
  EXPECT_EQ(arrivals.end(), (std::vector<int>{0, 1}));

  arrivals.begin();
  EXPECT_EQ(arrivals.arrived(1), -1) << "two came last time";
  EXPECT_EQ(arrivals.arrived(1), 1);
  EXPECT_TRUE(arrivals.complete(1));
  EXPECT_EQ(arrivals.arrived(1), -1) << "late";
  EXPECT_EQ(arrivals.arrived(0), 0);
  EXPECT_TRUE(arrivals.end().empty());

  arrivals.begin();
  arrivals.arrived(1);
  arrivals.arrived(1);
  EXPECT_FALSE(arrivals.complete(1)) << "three came last time";
  EXPECT_EQ(arrivals.end(), (std::vector<int>{0, 1}));
}

TEST(Arrivals, GuessedExpectsOneOfEachAtFirst) {
  Arrivals arrivals({0, 1}, 2, Promise::guessed);
  arrivals.begin();
  EXPECT_EQ(arrivals.arrived(1), 1) << "without waiting for the end";
  EXPECT_EQ(arrivals.arrived(1), -1) << "late";
  EXPECT_EQ(arrivals.arrived(0), 0);
  EXPECT_TRUE(arrivals.end().empty());

  arrivals.begin();
  EXPECT_EQ(arrivals.arrived(1), -1) << "two came last time";
  EXPECT_EQ(arrivals.arrived(1), 1);
}

TEST(Arrivals, AUseThatBroughtNothingOwesNothing) {
  Arrivals arrivals({0, 0}, 1, Promise::learned);
  arrivals.begin();
  arrivals.arrived(0);
  arrivals.end();
  arrivals.begin();
  EXPECT_EQ(arrivals.arrived(0), 0) << "use 1 had no part";
  EXPECT_EQ(arrivals.arrived(1), -1);
  EXPECT_TRUE(arrivals.complete(1)) << "and is late now";
  arrivals.end();
  arrivals.begin();
  EXPECT_EQ(arrivals.arrived(0), -1);
  EXPECT_EQ(arrivals.arrived(1), 0);
}

}  // namespace
}  // namespace lockstep::state
