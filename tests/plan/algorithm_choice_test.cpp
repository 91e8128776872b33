#include "lockstep/plan/algorithm_choice.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/plan/machines.h"

namespace lockstep::plan {
namespace {

const Link kFast{1e-6, 10e9, false};
const Link kSlow{20e-6, 1e9, false};

TEST(AlgorithmChoice, FewRoundsWinWhereBytesAreFew) {
  const TwoLevels flat{.hosts = 1, .ranks_per_host = 16, .inside = kFast, .across = kSlow};
  // As direct takes two rounds and sends least: always, where links do not tire.
  for (const double bytes : {8.0, 1e4, 1e8}) {
    EXPECT_EQ(cheapest(Collective::all_reduce, flat, bytes), Algorithm::direct) << bytes;
  }
  // A root that sends to all has its way out full.
  EXPECT_EQ(cheapest(Collective::broadcast, flat, 8), Algorithm::direct);
  EXPECT_EQ(cheapest(Collective::broadcast, flat, 1e4), Algorithm::binomial);
  EXPECT_EQ(cheapest(Collective::broadcast, flat, 1e8), Algorithm::scatter_all_gather);
}

TEST(AlgorithmChoice, SlowLinksBetweenHostsAreSpared) {
  const TwoLevels hosts{.hosts = 4, .ranks_per_host = 4, .inside = kFast, .across = kSlow};
  EXPECT_EQ(cheapest(Collective::all_reduce, hosts, 1e6), Algorithm::hierarchical);
  EXPECT_NEAR(expected_seconds(Collective::all_reduce, Algorithm::hierarchical, hosts, 16e6),
              2e-6 + 1.5 * 16e6 / 10e9 + 40e-6 + 1.5 * 4e6 / 1e9, 1e-12);
  EXPECT_NEAR(expected_seconds(Collective::all_reduce, Algorithm::halving, hosts, 16e6),
              4e-6 + 1.5 * 16e6 / 10e9 + 80e-6 + 1.5 * 4e6 / 1e9, 1e-12);
  EXPECT_NEAR(expected_seconds(Collective::all_reduce, Algorithm::direct, hosts, 16e6),
              40e-6 + 2 * 15e6 / 1e9, 1e-12);
  // Three ranks a host are no subtree: hierarchical would group sums in another way.
  const TwoLevels odd{.hosts = 4, .ranks_per_host = 3, .inside = kFast, .across = kSlow};
  EXPECT_NE(cheapest(Collective::all_reduce, odd, 1e6), Algorithm::hierarchical);
}

TEST(AlgorithmChoice, RulesShareWhatNeighboursChoose) {
  const TwoLevels flat{.hosts = 1, .ranks_per_host = 16, .inside = kFast, .across = kSlow};
  const AlgorithmTable rules =
      cheapest_by_size(Collective::broadcast, flat, {8, 64, 10'000, 20'000, 100'000'000});
  const std::vector<AlgorithmRule> expected = {
      {Collective::broadcast, Algorithm::direct, 64},
      {Collective::broadcast, Algorithm::binomial, 20'000},
      {Collective::broadcast, Algorithm::scatter_all_gather}};
  EXPECT_EQ(rules.rules, expected);
  EXPECT_TRUE(cheapest_by_size(Collective::broadcast, flat, {}).rules.empty());
}

TEST(AlgorithmChoice, LinksAreTheSlowestUnderTheRanks) {
  Topology topology = machines(2, {.packages = 2, .caches = 1, .cores = 2});
  topology.links = {kFast, Link{2e-6, 5e9, false}, Link{3e-6, 2e9, false}, kSlow};
  const TwoLevels network = two_levels(place_ranks(topology, 8));
  EXPECT_EQ(network.hosts, 2);
  EXPECT_EQ(network.ranks_per_host, 4);
  EXPECT_EQ(network.inside, topology.links[2]);
  EXPECT_EQ(network.across, kSlow);
  const TwoLevels one = two_levels(place_ranks(topology, 2));
  EXPECT_EQ(one.hosts, 1);
  EXPECT_EQ(one.inside, kFast);
  EXPECT_THROW(two_levels(place_ranks(topology, 5)), UsageError);
  EXPECT_THROW(expected_seconds(Collective::all_reduce, Algorithm::tree, network, 8), UsageError);
}

}  // namespace
}  // namespace lockstep::plan
