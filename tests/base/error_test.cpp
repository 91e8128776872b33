#include "lockstep/base/error.h"

#include <gtest/gtest.h>

#include "lockstep/base/assert.h"

namespace lockstep {
namespace {

// Scripts act on these codes; they are part of the command's face.
TEST(Error, ExitCodesArePinned) {
  EXPECT_EQ(TrainingError("").exit_code(), 1);
  EXPECT_EQ(UsageError("").exit_code(), 2);
  EXPECT_EQ(EnvironmentError("").exit_code(), 3);
  EXPECT_EQ(RankDied("").exit_code(), 4);
  EXPECT_EQ(CommError("").exit_code(), 5);
  EXPECT_EQ(StateError("").exit_code(), 6);
  EXPECT_EQ(OutOfMemory("").exit_code(), 7);
}

TEST(Error, IsCaughtByKindAndKeepsItsMessage) {
  try {
    throw RankDied("rank 2 was killed");
  } catch (const CommError& error) {
    EXPECT_STREQ(error.what(), "rank 2 was killed");
    EXPECT_EQ(error.exit_code(), 4);
  }
}

TEST(AssertDeathTest, SaysWhereAndWhyInEveryBuild) {
  LOCKSTEP_ASSERT(1 + 1 == 2, "holds");
  EXPECT_DEATH(LOCKSTEP_ASSERT(1 + 1 == 3, "the sum is two"),
               "broken invariant at .*error_test.cpp:[0-9]+: the sum is two");
}

}  // namespace
}  // namespace lockstep
