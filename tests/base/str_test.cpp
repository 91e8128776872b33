#include "lockstep/base/str.h"

#include <gtest/gtest.h>

namespace lockstep::base {
namespace {

TEST(Str, JoinsPieces) {
  EXPECT_EQ(str("rank ", 3, " of ", 8, ", ", 0.5, " s"), "rank 3 of 8, 0.5 s");
}

TEST(Joined, WritesAListAsAPersonWould) {
  EXPECT_EQ(joined({}), "");
  EXPECT_EQ(joined({"a"}), "a");
  EXPECT_EQ(joined({"a", "b"}), "a and b");
  EXPECT_EQ(joined({"a", "b", "c"}), "a, b and c");
  EXPECT_EQ(joined({"a", "b", "c"}, " or "), "a, b or c");
}

TEST(Nearest, FindsASlipOfTheFingers) {
  const std::vector<std::string> keys = {"optim.lr", "optim.eps", "data.global_batch", "run.seed"};
  EXPECT_EQ(nearest("data.globl_batch", keys), "data.global_batch");
  EXPECT_EQ(nearest("optim.lt", keys), "optim.lr");
  EXPECT_EQ(nearest("run.sede", keys), "run.seed");
  EXPECT_EQ(nearest("run.seed", keys), "run.seed");
}

TEST(Nearest, OffersNothingThatIsFarOff) {
  EXPECT_EQ(nearest("completely_other", {"optim.lr", "run.seed"}), "");
  EXPECT_EQ(nearest("x", {"abcd"}), "");
  EXPECT_EQ(nearest("x", {}), "");
}

}  // namespace
}  // namespace lockstep::base
