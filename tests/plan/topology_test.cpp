#include "lockstep/plan/topology.h"

#include <algorithm>
#include <set>

#include "lockstep/base/error.h"
#include "tests/plan/machines.h"
#include "tests/plan/property.h"

namespace lockstep::plan {
namespace {

std::vector<int> cpus_of(const Placement& placement) {
  std::vector<int> cpus;
  for (int rank = 0; rank < placement.ranks(); ++rank) cpus.push_back(placement.cpu_of(rank));
  return cpus;
}

std::string refusal(const Topology& topology, int ranks) {
  try {
    place_ranks(topology, ranks);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Topology, LinksAreThePictureInTheHeader) {
  const Placement placement =
      place_ranks(machines(2, {.packages = 2, .caches = 2, .cores = 2}), 16);
  EXPECT_EQ(level_between(placement, 0, 1), LinkLevel::cache);
  EXPECT_EQ(level_between(placement, 0, 2), LinkLevel::package);
  EXPECT_EQ(level_between(placement, 0, 4), LinkLevel::host);
  EXPECT_EQ(level_between(placement, 7, 8), LinkLevel::network);
  EXPECT_EQ(placement.host_of(7).name, "h0");
  EXPECT_EQ(placement.host_of(8).name, "h1");
  EXPECT_EQ(link_between(placement, 0, 4), placement.topology.links[2]);
  EXPECT_EQ(link_between(placement, 0, 8), placement.topology.links[3]);
}

TEST(Topology, AGroupIsAsSlowAsItsSlowestLink) {
  Placement placement = place_ranks(machines(2, {.packages = 2, .caches = 2, .cores = 2}), 16);
  EXPECT_EQ(slowest_level(placement, {3}), std::nullopt);
  EXPECT_EQ(slowest_level(placement, {0, 1}), LinkLevel::cache);
  EXPECT_EQ(slowest_level(placement, {0, 1, 3}), LinkLevel::package);
  EXPECT_EQ(slowest_level(placement, {5, 0, 1}), LinkLevel::host);
  EXPECT_EQ(slowest_level(placement, {0, 1, 8}), LinkLevel::network);
  // A network of 100 GB/s: what we assume of the other links says nothing against it...
  placement.topology.links[3] = {.latency_s = 2e-6, .bytes_per_second = 100e9};
  EXPECT_EQ(slowest_level(placement, {0, 4, 8}), LinkLevel::network);
  // ...but if they are given too, the one between sockets is the slowest.
  for (Link& link : placement.topology.links) link.assumed = false;
  EXPECT_EQ(slowest_level(placement, {0, 4, 8}), LinkLevel::host);
  EXPECT_EQ(slowest_level(placement, {0, 8}), LinkLevel::network);
}

TEST(Topology, SlowerIsFewerBytesASecondThenMoreLatency) {
  const Link link{.latency_s = 1e-6, .bytes_per_second = 1e9};
  EXPECT_TRUE(link.is_slower_than({.latency_s = 2e-6, .bytes_per_second = 2e9}));
  EXPECT_FALSE(link.is_slower_than({.latency_s = 0.5e-6, .bytes_per_second = 0.5e9}));
  EXPECT_TRUE(link.is_slower_than({.latency_s = 0.5e-6, .bytes_per_second = 1e9}));
  EXPECT_FALSE(link.is_slower_than(link));
}

TEST(Topology, CoresComeBeforeSecondThreads) {
  Topology topology = machines(1, {.packages = 1, .caches = 2, .cores = 2, .threads = 2});
  EXPECT_EQ(topology.cores(), 4);
  EXPECT_EQ(topology.hardware_threads(), 8);
  EXPECT_EQ(cpus_of(place_ranks(topology, 2)), (std::vector<int>{0, 1}));
  EXPECT_EQ(cpus_of(place_ranks(topology, 4)), (std::vector<int>{0, 1, 2, 3}));
  // Two on core 0, and they are neighbours in rank too.
  EXPECT_EQ(cpus_of(place_ranks(topology, 5)), (std::vector<int>{0, 4, 1, 2, 3}));
  EXPECT_EQ(cpus_of(place_ranks(topology, 8)), (std::vector<int>{0, 4, 1, 5, 2, 6, 3, 7}));
  EXPECT_EQ(level_between(place_ranks(topology, 5), 0, 1), LinkLevel::cache);
  topology.hosts[0].packages[0].caches[0].cores[0].cpus.pop_back();
  EXPECT_EQ(cpus_of(place_ranks(topology, 5)), (std::vector<int>{0, 1, 5, 2, 3}));
}

TEST(Topology, CoresOfAllHostsComeBeforeSecondThreads) {
  const Topology topology = machines(2, {.cores = 2, .threads = 2});
  const Placement placement = place_ranks(topology, 4);
  for (const Seat& seat : placement.seats) EXPECT_EQ(seat.thread, 0);
  EXPECT_EQ(placement.seats[2].host, 1);
  EXPECT_EQ(place_ranks(topology, 6).seats[3].host, 0);  // host 0 has 4 of the 6, in one block
}

TEST(Topology, RefusesRanksThatDoNotFit) {
  const Topology topology = machines(2, {.cores = 2, .threads = 2});
  EXPECT_EQ(refusal(topology, 0), "0 ranks: a job has at least 1 rank.");
  EXPECT_EQ(refusal(topology, 9),
            "9 ranks do not fit: the topology has 4 cores with 8 hardware threads.\n"
            "  Place at most 8 ranks, or one a core: 4.");
  EXPECT_EQ(refusal(topology, 8), "accepted");
}

RC_GTEST_PROP(Topology, PlacementsAreBlocksOfDistinctSlots, ()) {
  const auto within = [](int most) { return *rc::gen::inRange(1, most + 1); };
  const int hosts = within(4);
  const Machine machine{
      .packages = within(2), .caches = within(4), .cores = within(8), .threads = within(2)};
  const Topology topology = machines(hosts, machine);
  const int ranks = within(topology.hardware_threads());
  const Placement placement = place_ranks(topology, ranks);
  RC_ASSERT(placement.ranks() == ranks);
  RC_ASSERT(std::set<Seat>(placement.seats.begin(), placement.seats.end()).size() ==
            placement.seats.size());
  RC_ASSERT(std::is_sorted(placement.seats.begin(), placement.seats.end()));

  // No core has two ranks while another has none, and every level is filled before the next begins.
  std::set<Seat> cores;
  for (Seat seat : placement.seats) {
    seat.thread = 0;
    cores.insert(seat);
  }
  RC_ASSERT(static_cast<int>(cores.size()) == std::min(ranks, topology.cores()));
  const Seat last = *cores.rbegin();
  const int before_last =
      ((last.host * machine.packages + last.package) * machine.caches + last.cache) *
          machine.cores +
      last.core;
  RC_ASSERT(before_last + 1 == static_cast<int>(cores.size()));
}

RC_GTEST_PROP(Topology, LinksAreAsGoodOneWayAsTheOtherAndNestLikeBoxes, ()) {
  const Topology topology = machines(2, {.packages = 2, .caches = 2, .cores = 3});
  const Placement placement = place_ranks(topology, 24);
  const int a = *rc::gen::inRange(0, 24);
  const int b = *rc::gen::inRange(0, 24);
  const int c = *rc::gen::inRange(0, 24);
  const LinkLevel ab = level_between(placement, a, b);
  RC_ASSERT(ab == level_between(placement, b, a));
  RC_ASSERT(level_between(placement, a, c) <= std::max(ab, level_between(placement, b, c)));
}

}  // namespace
}  // namespace lockstep::plan
