#include "lockstep/train/detail/unit_order.h"

#include <gtest/gtest.h>

namespace lockstep::detail {
namespace {

using Pass = UnitOrder::Pass;
using Units = std::vector<int>;

/// Comes to `units`; what was ahead at each, one deep.
Units walk(UnitOrder& order, const Units& units) {
  Units ahead;
  for (const int unit : units) {
    order.come_to(unit);
    const Units next = order.ahead(1);
    ahead.push_back(next.empty() ? -1 : next[0]);
  }
  return ahead;
}

TEST(UnitOrder, IsLearnedInTheFirstPassOfAKind) {
  UnitOrder order(3);
  EXPECT_EQ(walk(order, {0, 1, 2}), (Units{-1, -1, -1}));
  order.begin(Pass::backward);
  EXPECT_EQ(walk(order, {2, 1, 0}), (Units{-1, -1, -1}));
  order.begin(Pass::forward);
  EXPECT_EQ(order.ahead(2), (Units{0, 1}));
  EXPECT_EQ(walk(order, {0, 1, 2}), (Units{1, 2, -1}));
  order.begin(Pass::backward);
  EXPECT_EQ(walk(order, {2, 1, 0}), (Units{1, 0, -1}));
}

TEST(UnitOrder, APassThatDeviatesIsLearnedAnew) {
  UnitOrder order(3);
  walk(order, {0, 1, 2});
  order.begin(Pass::backward);
  order.begin(Pass::forward);
  EXPECT_EQ(walk(order, {0, 2, 1}), (Units{1, -1, -1}));
  order.begin(Pass::backward);
  order.begin(Pass::forward);
  EXPECT_EQ(walk(order, {0, 2, 1}), (Units{2, 1, -1}));
}

TEST(UnitOrder, APassThatDeviatesIsNotFollowedAgain) {
  UnitOrder order(4);
  walk(order, {0, 1, 2, 3});
  order.begin(Pass::backward);
  order.begin(Pass::forward);
  EXPECT_EQ(walk(order, {0, 3, 2, 1}), (Units{1, -1, -1, -1})) << "2 is in its old place again";
}

TEST(UnitOrder, AShorterPassIsLearnedToo) {
  UnitOrder order(3);
  walk(order, {0, 1, 2});
  order.begin(Pass::backward);
  order.begin(Pass::forward);
  walk(order, {0, 1});
  order.begin(Pass::backward);
  order.begin(Pass::forward);
  EXPECT_EQ(walk(order, {0, 1}), (Units{1, -1}));
}

TEST(UnitOrder, ForwardsWithoutBackwardFollowEachOther) {
  UnitOrder order(3);
  EXPECT_EQ(walk(order, {0, 1, 2}), (Units{-1, -1, -1}));
  EXPECT_EQ(walk(order, {0, 1, 2}), (Units{1, 2, -1}));
  EXPECT_EQ(walk(order, {0, 1, 2}), (Units{1, 2, -1}));
  order.begin(Pass::backward);
  order.begin(Pass::forward);
  EXPECT_EQ(walk(order, {0, 1, 2}), (Units{1, 2, -1})) << "and are one pass";
}

TEST(UnitOrder, AUnitMayComeTwiceInAPass) {
  UnitOrder order(3);
  walk(order, {0, 1, 0, 2});
  order.begin(Pass::backward);
  order.begin(Pass::forward);
  EXPECT_EQ(walk(order, {0, 1, 0, 2}), (Units{1, 0, 2, -1}));
  // Again, without a backward: 0 alone does not end the pass.
  EXPECT_EQ(walk(order, {0, 1, 0, 2}), (Units{1, 0, 2, -1}));
}

/// Evaluation that never ends and leaves a unit out does not grow for ever.
TEST(UnitOrder, APassOverSomeUnitsEndsInTime) {
  UnitOrder order(3);
  for (int turn = 0; turn < 6; ++turn) walk(order, {0, 1});
  EXPECT_EQ(walk(order, {0, 1}), (Units{1, 0}));
}

TEST(UnitOrder, AheadAreDifferentUnits) {
  UnitOrder order(3);
  walk(order, {0, 1, 0, 1, 2});
  order.begin(Pass::backward);
  order.begin(Pass::forward);
  order.come_to(0);
  EXPECT_EQ(order.ahead(0), Units{});
  EXPECT_EQ(order.ahead(1), Units{1});
  EXPECT_EQ(order.ahead(5), (Units{1, 2}));
}

}  // namespace
}  // namespace lockstep::detail
