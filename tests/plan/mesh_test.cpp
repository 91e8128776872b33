#include "lockstep/plan/mesh.h"

#include <algorithm>
#include <set>

#include "lockstep/base/error.h"
#include "tests/plan/property.h"

namespace lockstep::plan {
namespace {

std::string refusal(const std::string& text, int world) {
  try {
    Mesh::parse(text, world);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Mesh, IsThePictureInTheHeader) {
  const Mesh mesh = Mesh::parse("dp=2 tp=2", 4);
  EXPECT_EQ(mesh.world(), 4);
  EXPECT_EQ(mesh.rank_at({1, 0}), 2);
  EXPECT_EQ(mesh.coordinates(3), (std::vector<int>{1, 1}));
  EXPECT_EQ(mesh.index(2, "dp"), 1);
  EXPECT_EQ(mesh.index(2, "tp"), 0);
  EXPECT_EQ(mesh.group_of(1, {"dp"}), (std::vector<int>{1, 3}));
  EXPECT_EQ(mesh.group_of(2, {"tp"}), (std::vector<int>{2, 3}));
}

TEST(Mesh, AnAxisThatIsNotThereHasSizeOne) {
  const Mesh mesh = Mesh::parse("dp=3", 3);
  EXPECT_EQ(mesh.size("dp"), 3);
  EXPECT_EQ(mesh.size("pp"), 1);
  EXPECT_EQ(mesh.index(2, "pp"), 0);
  EXPECT_EQ(mesh.group_of(2, {"pp"}), (std::vector<int>{2}));
}

TEST(Mesh, OneSizeMayBeWhatTheWorldLeaves) {
  EXPECT_EQ(Mesh::parse("dp=-1 tp=2", 6).size("dp"), 3);
  EXPECT_EQ(Mesh::parse("dp=-1", 1).size("dp"), 1);
  EXPECT_EQ(Mesh::parse("  pp=2   dp=-1 ", 2).size("dp"), 1);
  EXPECT_EQ(Mesh::parse("", 1).world(), 1);
}

TEST(Mesh, RefusesAndOffersTheNearestThatFits) {
  EXPECT_EQ(refusal("dp=2 tp=3", 8),
            "mesh dp=2, tp=3 has 6 places for 8 ranks.\n"
            "  Nearest that fits: \"dp=2 tp=4\", or start 6 ranks.");
  EXPECT_EQ(refusal("dp=-1 tp=3", 8),
            "mesh dp=-1, tp=3: 8 ranks do not divide by 3.\n"
            "  Nearest that fits: \"dp=-1 tp=4\". Or start a multiple of 3 ranks.");
  EXPECT_EQ(refusal("dp=-1 tp=3", 10),
            "mesh dp=-1, tp=3: 10 ranks do not divide by 3.\n"
            "  Nearest that fits: \"dp=-1 tp=2\". Or start a multiple of 3 ranks.");
  EXPECT_EQ(refusal("dp=4", 3),
            "mesh dp=4 has 4 places for 3 ranks.\n"
            "  Nearest that fits: \"dp=3\", or start 4 ranks.");
  EXPECT_EQ(
      refusal("", 2),
      "a mesh without axes has 1 place for 2 ranks.\n  Name an axis of size 2, or start 1 rank.");
}

TEST(Mesh, RefusesWhatIsNoMesh) {
  EXPECT_EQ(refusal("dp=two", 2),
            "mesh \"dp=two\": \"dp=two\" is no axis.\n  Write NAME=SIZE with blanks between the "
            "axes, outermost first: \"dp=2 tp=2\".");
  EXPECT_NE(refusal("dp", 1), "accepted");
  EXPECT_NE(refusal("=2", 2), "accepted");
  EXPECT_NE(refusal("dp=", 1), "accepted");
  EXPECT_NE(refusal("dp=2x", 2), "accepted");
  EXPECT_NE(refusal("dp=99999999999", 2), "accepted");
  EXPECT_EQ(refusal("dp=0", 1), "mesh dp=0: the axis \"dp\" has size 0.\n  Set it to 1 or more.");
  EXPECT_NE(refusal("dp=-2", 2), "accepted");
  EXPECT_EQ(refusal("dp=2 dp=1", 2),
            "mesh dp=2, dp=1: the axis \"dp\" comes twice.\n  Give each axis once.");
  EXPECT_NE(refusal("dp=-1 tp=-1", 4), "accepted");
  EXPECT_NE(refusal("a=65536 b=65536", 1), "accepted");
  EXPECT_THROW(Mesh({{"dp", -1}}), UsageError);
}

// What a refusal offers is accepted, for every world up to 512.
RC_GTEST_PROP(Mesh, WhatItOffersFits, ()) {
  const int world = *rc::gen::inRange(1, 513);
  const std::string text = "pp=" + std::to_string(*rc::gen::inRange(1, 9)) +
                           " dp=" + std::to_string(*rc::gen::element(-1, 1, 2, 3, 5, 8, 64)) +
                           " tp=" + std::to_string(*rc::gen::inRange(1, 9));
  const std::string said = refusal(text, world);
  if (said == "accepted") return;
  const size_t first = said.find('"') + 1;
  const std::string offered = said.substr(first, said.find('"', first) - first);
  RC_ASSERT(refusal(offered, world) == "accepted");
}

// Along any choice of axes, the groups partition the world, and members agree on their group.
RC_GTEST_PROP(Mesh, GroupsPartitionTheWorldUpTo512, ()) {
  std::vector<MeshAxis> axes;
  std::vector<std::string> along;
  for (const char* name : {"replica", "pp", "shard", "tp"}) {
    axes.push_back({name, *rc::gen::element(1, 2, 3, 4)});
    if (*rc::gen::arbitrary<bool>()) along.push_back(name);
  }
  const Mesh mesh(axes);
  size_t expected = 1;
  for (const std::string& name : along) expected *= static_cast<size_t>(mesh.size(name));

  std::vector<int> seen(static_cast<size_t>(mesh.world()));
  for (int rank = 0; rank < mesh.world(); ++rank) {
    RC_ASSERT(mesh.rank_at(mesh.coordinates(rank)) == rank);
    const std::vector<int> group = mesh.group_of(rank, along);
    RC_ASSERT(group.size() == expected);
    RC_ASSERT(std::is_sorted(group.begin(), group.end()));
    RC_ASSERT(std::find(group.begin(), group.end(), rank) != group.end());
    for (const int member : group) RC_ASSERT(mesh.group_of(member, along) == group);
    if (group.front() == rank) {
      for (const int member : group) ++seen[static_cast<size_t>(member)];
    }
  }
  for (const int times : seen) RC_ASSERT(times == 1);
}

}  // namespace
}  // namespace lockstep::plan
