#include "lockstep/plan/network_model.h"

#include <gtest/gtest.h>

namespace lockstep::plan {
namespace {

/// `hosts` hosts of `cores` cores; a message inside takes 1 us and 1 us a KB, across 10 us and 8.
NetworkModel network(int hosts, int cores) {
  Topology topology;
  for (int h = 0; h < hosts; ++h) {
    Host host{.name = std::to_string(h), .packages = {{.caches = {CacheGroup{}}}}};
    for (int c = 0; c < cores; ++c) host.packages[0].caches[0].cores.push_back({.cpus = {c}});
    topology.hosts.push_back(std::move(host));
  }
  topology.links[0] = {1e-6, 1e9, false};
  topology.links[3] = {10e-6, 0.125e9, false};
  NetworkModel network;
  network.placement = place_ranks(std::move(topology), hosts * cores);
  return network;
}

constexpr double kTiny = 1e-15;

TEST(NetworkModel, AMessageTakesLatencyAndBytesOfItsLink) {
  const NetworkModel model = network(2, 2);
  RankClock from(model, 0, 4);
  RankClock near(model, 1, 4);
  RankClock far(model, 2, 4);
  const double first = from.send(1, 1000);
  EXPECT_NEAR(first, 1e-6 + 1e-6, kTiny);
  const double second = from.send(2, 1000);  // leaves when the first has left
  EXPECT_NEAR(second, 1e-6 + 8e-6 + 10e-6, kTiny);
  near.expect(0, 1000, first);
  near.complete();
  EXPECT_NEAR(near.now(), 2e-6, kTiny);
  far.expect(0, 1000, second);
  far.complete();
  EXPECT_NEAR(far.now(), 19e-6, kTiny);
  from.complete();
  EXPECT_NEAR(from.now(), 9e-6, kTiny) << "a send is over when it has left";
  from.restart();
  EXPECT_EQ(from.now(), 0);
}

/// Two that arrive at once come in one after the other, in whatever order they were asked for.
TEST(NetworkModel, TheWayInCarriesOneMessageAfterTheOther) {
  const NetworkModel model = network(1, 3);
  for (const bool swapped : {false, true}) {
    RankClock clock(model, 2, 3);
    clock.expect(swapped ? 1 : 0, 1000, 2e-6);
    clock.expect(swapped ? 0 : 1, 1000, 2e-6);
    clock.complete();
    EXPECT_NEAR(clock.now(), 3e-6, kTiny);
  }
}

TEST(NetworkModel, ASlowRankIsSlowBothWays) {
  NetworkModel model = network(1, 3);
  model.slow_rank = 1;
  model.slow_factor = 4;
  EXPECT_NEAR(model.transfer_s(0, 1, 1000, 0), 4e-6, kTiny);
  EXPECT_NEAR(model.transfer_s(1, 2, 1000, 0), 4e-6, kTiny);
  EXPECT_NEAR(model.transfer_s(0, 2, 1000, 0), 1e-6, kTiny);
}

TEST(NetworkModel, JitterIsDrawnByMessageAndBounded) {
  NetworkModel model = network(1, 2);
  model.jitter = 0.5;
  double least = 1;
  double most = 0;
  for (int64_t number = 0; number < 1000; ++number) {
    const double seconds = model.transfer_s(0, 1, 1000, number);
    EXPECT_EQ(seconds, model.transfer_s(0, 1, 1000, number));
    least = std::min(least, seconds);
    most = std::max(most, seconds);
  }
  EXPECT_GE(least, 1e-6);
  EXPECT_LT(least, 1.01e-6);
  EXPECT_LE(most, 1.5e-6);
  EXPECT_GT(most, 1.49e-6);
  NetworkModel other = model;
  other.seed = 1;
  EXPECT_NE(other.transfer_s(0, 1, 1000, 0), model.transfer_s(0, 1, 1000, 0));
}

}  // namespace
}  // namespace lockstep::plan
