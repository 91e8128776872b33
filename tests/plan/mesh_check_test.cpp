#include "lockstep/plan/mesh_check.h"

#include <algorithm>

#include "tests/plan/machines.h"
#include "tests/plan/property.h"

namespace lockstep::plan {
namespace {

std::vector<MeshWarning> check(const Topology& topology, const std::string& mesh, int ranks) {
  return check_mesh(place_ranks(topology, ranks), Mesh::parse(mesh, ranks));
}

/// The warnings as lines, "what; help".
std::vector<std::string> lines(const std::vector<MeshWarning>& warnings) {
  std::vector<std::string> all;
  for (const MeshWarning& warning : warnings) all.push_back(warning.what + "; " + warning.help);
  return all;
}

using Lines = std::vector<std::string>;

TEST(MeshCheck, AMeshInOrderOnHostsOfItsSizeIsFine) {
  const Topology topology = machines(4, {.packages = 2, .cores = 4});
  EXPECT_EQ(lines(check(topology, "replica=2 pp=2 shard=2 tp=4", 32)), Lines{});
  EXPECT_EQ(lines(check(topology, "dp=2 pp=2 tp=8", 32)), Lines{});
  EXPECT_EQ(lines(check(topology, "pp=4 dp=8", 32)), Lines{});
  EXPECT_EQ(lines(check(topology, "dp=32", 32)), Lines{});
  EXPECT_EQ(lines(check(topology, "dp=1", 1)), Lines{});
  EXPECT_EQ(lines(check(topology, "cp=1 tp=1", 1)), Lines{});
}

TEST(MeshCheck, TensorParallelismAsksForOneHost) {
  Topology topology = machines(2, {.cores = 4});
  topology.links[3] = {.latency_s = 5e-6, .bytes_per_second = 12.5e9};
  topology.links[2].bytes_per_second = 20e9;
  const auto warnings = check(topology, "tp=8", 8);
  EXPECT_EQ(lines(warnings), Lines{"tp group {0, 1, 2, 3, 4, 5, 6, 7} crosses hosts (12.5 GB/s) "
                                   "while tp asks for links inside a host; use tp=4"});
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0].axis, "tp");
  EXPECT_EQ(warnings[0].group, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(warnings[0].crosses, LinkLevel::network);
  EXPECT_EQ(warnings[0].asks, LinkLevel::host);
  // An axis of one rank has no links that tp's could be compared with.
  EXPECT_EQ(lines(check(topology, "dp=1 tp=8", 8)), lines(warnings));
  EXPECT_EQ(
      lines(check(machines(2, {}), "tp=2", 2)),
      Lines{"tp group {0, 1} crosses hosts (1 GB/s, assumed) while tp asks for links inside a "
            "host; use tp=1"});
}

TEST(MeshCheck, ABlockThatAHostHasRoomForDoesNotLieAcrossTwo) {
  const Topology topology = machines(2, {.cores = 6});
  EXPECT_EQ(
      lines(check(topology, "dp=3 tp=4", 12)),
      Lines{"tp group {4, 5, 6, 7} crosses hosts (1 GB/s, assumed) while a cache has room for "
            "its block of 4 ranks; use tp=2, or place a multiple of 4 ranks in each cache"});
  EXPECT_EQ(lines(check(topology, "dp=2 tp=6", 12)), Lines{});
  // The same for axes that may leave a host: dp's blocks of 4 neighbours.
  EXPECT_EQ(lines(check(topology, "pp=3 dp=4", 12)).size(), 1u);
  const auto across = check(machines(2, {.packages = 2, .cores = 3}), "pp=3 dp=4", 12);
  ASSERT_EQ(across.size(), 1u);
  EXPECT_EQ(across[0].asks, LinkLevel::host);
  // Room is that of the largest: here a block fills host 1.
  Topology unequal = machines(3, {.cores = 4});
  for (const size_t host : {0, 2}) unequal.hosts[host].packages[0].caches[0].cores.resize(2);
  EXPECT_EQ(
      lines(check(unequal, "pp=2 dp=4", 8)),
      Lines{"dp group {0, 1, 2, 3} crosses hosts (1 GB/s, assumed) while a cache has room for "
            "its block of 4 ranks; use dp=2, or place a multiple of 4 ranks in each cache"});
  // Of prime size there is no smaller axis to offer.
  EXPECT_EQ(
      lines(check(machines(1, {.packages = 2, .cores = 3}), "dp=3 tp=2", 6)),
      Lines{"tp group {2, 3} crosses packages (8 GB/s, assumed) while a cache has room for its "
            "block of 2 ranks; place a multiple of 2 ranks in each cache"});
}

TEST(MeshCheck, AnAxisThatAsksForMoreHasNoSlowerLinks) {
  const Topology topology = machines(2, {.cores = 4});
  const auto warnings = check(topology, "tp=2 dp=4", 8);
  EXPECT_EQ(lines(warnings),
            Lines{"tp group {0, 4} crosses hosts (1 GB/s, assumed) while dp, which asks for less, "
                  "stays inside a cache (20 GB/s, assumed); order the axes from outside in: "
                  "\"dp=4 tp=2\""});
  EXPECT_EQ(
      lines(check(topology, "cp=2 tp=2 dp=2", 8)),
      Lines{
          "cp group {0, 4} crosses hosts (1 GB/s, assumed) while dp, which asks for less, stays "
          "inside a cache (20 GB/s, assumed); order the axes from outside in: \"dp=2 cp=2 tp=2\""});
  // Data parallelism may lie outside of a pipeline, as replicas, or inside, as shards.
  EXPECT_EQ(lines(check(topology, "pp=2 dp=4", 8)), Lines{});
  EXPECT_EQ(lines(check(topology, "dp=2 pp=4", 8)), Lines{});
  EXPECT_EQ(lines(check(topology, "shard=2 pp=4", 8)).size(), 1u);
  // Of an axis with another name nothing is known but its size.
  EXPECT_EQ(lines(check(topology, "mine=2 dp=4", 8)), Lines{});
}

TEST(MeshCheck, LevelsInsideAHostCountToo) {
  const Topology topology = machines(1, {.packages = 2, .caches = 2, .cores = 2});
  EXPECT_EQ(lines(check(topology, "dp=2 tp=4", 8)), Lines{});
  const auto warnings = check(topology, "tp=2 dp=4", 8);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0].crosses, LinkLevel::host);
  EXPECT_EQ(warnings[0].asks, LinkLevel::package);
  const auto straddling =
      check(machines(1, {.packages = 2, .caches = 2, .cores = 3}), "dp=3 tp=4", 12);
  ASSERT_EQ(straddling.size(), 1u);
  EXPECT_EQ(straddling[0].group, (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(straddling[0].asks, LinkLevel::package);
}

TEST(MeshCheck, ANetworkFasterThanSharedMemoryIsNoReason) {
  Topology topology = machines(2, {.cores = 4});
  for (Link& link : topology.links) link = {.latency_s = 1e-6, .bytes_per_second = 10e9};
  topology.links[3].bytes_per_second = 100e9;
  EXPECT_EQ(lines(check(topology, "tp=8", 8)), Lines{});
  EXPECT_EQ(lines(check(topology, "tp=2 dp=4", 8)), Lines{});
  // Nor is there a nearer place than one cache, however slow.
  topology.links[0].bytes_per_second = 1e9;
  EXPECT_EQ(lines(check(topology, "dp=2 tp=4", 8)), Lines{});
}

TEST(MeshCheck, LongGroupsAreShort) {
  const auto warnings = check(machines(2, {.cores = 16}), "tp=32", 32);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0].what.substr(0, 25), "tp group {0, 1, ..., 31} ");
}

/// What the warnings say of a mesh is so, and what they advise ends them.
RC_GTEST_PROP(MeshCheck, WarnsOfGroupsOnSlowLinksAndAdviceHelps, ()) {
  const int cores = *rc::gen::inRange(1, 9);
  const int hosts = *rc::gen::inRange(1, 5);
  const Topology topology = machines(hosts, {.packages = 2, .cores = cores});
  const int ranks = topology.cores();
  std::vector<int> divisors;
  for (int size = 1; size <= ranks; ++size) {
    if (ranks % size == 0) divisors.push_back(size);
  }
  const int tp = *rc::gen::elementOf(divisors);
  const Placement placement = place_ranks(topology, ranks);
  const Mesh mesh({{"dp", ranks / tp}, {"tp", tp}});
  const auto warnings = check_mesh(placement, mesh);

  bool leaves_a_host = false;
  for (int rank = 0; rank < ranks; rank += tp) {
    const auto level = slowest_level(placement, mesh.group_of(rank, {"tp"}));
    leaves_a_host = leaves_a_host || level == LinkLevel::network;
  }
  const auto of_tp = std::find_if(warnings.begin(), warnings.end(),
                                  [](const MeshWarning& warning) { return warning.axis == "tp"; });
  RC_ASSERT(!leaves_a_host || of_tp != warnings.end());
  if (of_tp == warnings.end()) return;
  RC_ASSERT(slowest_level(placement, of_tp->group) == of_tp->crosses);
  RC_ASSERT(of_tp->crosses > of_tp->asks);

  if (!of_tp->help.starts_with("use tp=")) return;
  const int smaller = std::stoi(of_tp->help.substr(7));
  for (const MeshWarning& warning :
       check_mesh(placement, Mesh({{"dp", ranks / smaller}, {"tp", smaller}}))) {
    RC_ASSERT(warning.axis != "tp" || warning.crosses <= of_tp->asks);
  }
}

}  // namespace
}  // namespace lockstep::plan
