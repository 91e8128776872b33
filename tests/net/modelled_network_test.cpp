// Virtual clusters: real numerics, the clock of a network that is not there.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>

#include "lockstep/plan/algorithm_choice.h"
#include "lockstep/plan/collective_cost.h"
#include "lockstep/plan/tuned_table.h"
#include "tests/net/ranks.h"
#include "tests/net/values.h"

namespace lockstep::net::testing {
namespace {

using plan::Algorithm;
using plan::Collective;

constexpr double kLatency = 5e-6;
constexpr double kBytesPerSecond = 1e9;

/// `hosts` hosts of `cores` cores. Links inside are `faster` times as fast as those across.
std::shared_ptr<plan::NetworkModel> network(int hosts, int cores, double faster = 1) {
  plan::Topology topology;
  for (int h = 0; h < hosts; ++h) {
    plan::Host host{.name = std::to_string(h), .packages = {{.caches = {plan::CacheGroup{}}}}};
    for (int c = 0; c < cores; ++c) host.packages[0].caches[0].cores.push_back({.cpus = {c}});
    topology.hosts.push_back(std::move(host));
  }
  for (plan::Link& link : topology.links) {
    link = {kLatency / faster, kBytesPerSecond * faster, false};
  }
  topology.links.back() = {kLatency, kBytesPerSecond, false};
  auto model = std::make_shared<plan::NetworkModel>();
  model->placement = plan::place_ranks(std::move(topology), hosts * cores);
  return model;
}

struct Taken {
  double seconds = 0;  // of the slowest rank
  int64_t wrong = 0;
};

Taken all_reduce_on(const std::shared_ptr<plan::NetworkModel>& model, Algorithm algorithm,
                    int64_t count) {
  const int ranks = model->placement.ranks();
  std::vector<std::vector<int>> hosts(model->placement.topology.hosts.size());
  for (int r = 0; r < ranks; ++r) {
    hosts[static_cast<size_t>(model->placement.seats[static_cast<size_t>(r)].host)].push_back(r);
  }
  EndpointOptions options = patient();
  options.network = model;
  Taken taken;
  std::mutex mutex;  // guards taken
  run_on(
      Engine::threads, ranks,
      [&](const std::shared_ptr<Group>& group) {
        group->set_algorithms({.rules = {{Collective::all_reduce, algorithm}}, .hosts = hosts});
        std::vector<float> x(static_cast<size_t>(count), static_cast<float>(group->rank()));
        group->restart_modelled_clock();
        group->all_reduce(x.data(), count, DType::f32);
        const float sum = static_cast<float>(ranks * (ranks - 1) / 2);
        const std::lock_guard lock(mutex);
        taken.seconds = std::max(taken.seconds, group->modelled_seconds());
        taken.wrong += count - std::count(x.begin(), x.end(), sum);
      },
      options);
  EXPECT_EQ(taken.wrong, 0) << plan::name_of(algorithm);
  return taken;
}

/// On equal links a round costs its latency, and a rank the bytes that it sends.
TEST(ModelledNetwork, TakesTheTimeOfTheClosedForms) {
  for (const int ranks : {2, 4, 16}) {
    for (const int64_t count : {int64_t{16} * ranks, int64_t{4096} * ranks}) {
      const double bytes = static_cast<double>(count) * 4;
      for (const Algorithm algorithm : {Algorithm::direct, Algorithm::ring, Algorithm::halving}) {
        const plan::CollectiveCost cost = plan::all_reduce_cost(algorithm, ranks, bytes);
        const double formula = cost.rounds * kLatency + cost.bytes_sent / kBytesPerSecond;
        const Taken taken = all_reduce_on(network(1, ranks), algorithm, count);
        EXPECT_NEAR(taken.seconds, formula, 1e-9 * formula + 1e-12)
            << plan::name_of(algorithm) << " " << ranks << " ranks, " << count;
      }
    }
  }
}

/// Few bytes: fewer rounds win. Many bytes: those that send fewer. Slow links between hosts: those
/// that spare them.
TEST(ModelledNetwork, OrdersTheAlgorithmsAsTheFormulasDo) {
  const auto seconds = [](const std::shared_ptr<plan::NetworkModel>& model, Algorithm algorithm,
                          int64_t count) { return all_reduce_on(model, algorithm, count).seconds; };
  const auto flat = network(1, 16);
  EXPECT_LT(seconds(flat, Algorithm::direct, 256), seconds(flat, Algorithm::halving, 256));
  EXPECT_LT(seconds(flat, Algorithm::halving, 256), seconds(flat, Algorithm::ring, 256));
  EXPECT_LT(seconds(flat, Algorithm::ring, 1 << 18), seconds(flat, Algorithm::tree, 1 << 18));
  EXPECT_LT(seconds(flat, Algorithm::double_tree, 1 << 18),
            seconds(flat, Algorithm::tree, 1 << 18));
  const auto hosts = network(4, 4, /*faster=*/20);
  EXPECT_LT(seconds(hosts, Algorithm::hierarchical, 1 << 18),
            0.5 * seconds(hosts, Algorithm::direct, 1 << 18));
}

/// By time, the fastest first.
std::vector<Algorithm> in_order(const std::map<Algorithm, double>& seconds) {
  std::vector<Algorithm> order;
  for (const auto& [algorithm, time] : seconds) order.push_back(algorithm);
  std::stable_sort(order.begin(), order.end(),
                   [&](Algorithm a, Algorithm b) { return seconds.at(a) < seconds.at(b); });
  return order;
}

struct Compared {
  std::map<Algorithm, double> formula;
  std::map<Algorithm, double> taken;
};

Compared compare(const std::shared_ptr<plan::NetworkModel>& model, int64_t count) {
  const plan::TwoLevels levels = plan::two_levels(model->placement);
  Compared compared;
  for (const Algorithm algorithm :
       plan::candidates(Collective::all_reduce, levels.ranks(), levels.hosts)) {
    compared.formula[algorithm] = plan::expected_seconds(Collective::all_reduce, algorithm, levels,
                                                         static_cast<double>(count) * 4);
    compared.taken[algorithm] = all_reduce_on(model, algorithm, count).seconds;
  }
  return compared;
}

/// On equal links to the last digit; and so the algorithms come in one order.
TEST(ModelledNetwork, ChoosesAsTheFormulasDo) {
  for (const int ranks : {4, 8, 16}) {
    const auto model = network(1, ranks);
    for (const int64_t count : {int64_t{16} * ranks, int64_t{4096}, int64_t{1} << 16}) {
      const Compared compared = compare(model, count);
      for (const auto& [algorithm, formula] : compared.formula) {
        EXPECT_NEAR(compared.taken.at(algorithm), formula, 1e-9 * formula)
            << plan::name_of(algorithm) << " of " << count << " over " << ranks;
      }
      EXPECT_EQ(in_order(compared.taken), in_order(compared.formula));
      EXPECT_EQ(in_order(compared.taken)[0],
                plan::cheapest(Collective::all_reduce, plan::two_levels(model->placement),
                               static_cast<double>(count) * 4));
    }
  }
}

/// Across hosts messages of a direct round wait for each other in ways that no formula tells: the
/// choice may cost a tenth, not more.
TEST(ModelledNetwork, ChoosesWellAcrossHosts) {
  const std::vector<std::shared_ptr<plan::NetworkModel>> networks = {
      network(2, 4, /*faster=*/20), network(4, 2, /*faster=*/20), network(4, 4, /*faster=*/4),
      network(3, 4, /*faster=*/10)};
  for (const auto& model : networks) {
    for (const int64_t count : {int64_t{96}, int64_t{3} << 10, int64_t{3} << 14}) {
      const Compared compared = compare(model, count);
      const Algorithm chosen = in_order(compared.formula)[0];
      const Algorithm best = in_order(compared.taken)[0];
      EXPECT_LE(compared.taken.at(chosen), 1.1 * compared.taken.at(best))
          << plan::name_of(chosen) << " for " << plan::name_of(best) << ", " << count << " over "
          << model->placement.ranks();
      for (const auto& [algorithm, formula] : compared.formula) {
        // Blocks of other numbers of hosts wait for each other in ways of their own.
        const bool regular = std::has_single_bit(model->placement.topology.hosts.size()) ||
                             algorithm == Algorithm::hierarchical;
        if (algorithm == Algorithm::direct || !regular) continue;
        EXPECT_NEAR(compared.taken.at(algorithm), formula, 0.1 * formula)
            << plan::name_of(algorithm) << " of " << count << " over " << model->placement.ranks();
      }
    }
  }
}

TEST(ModelledNetwork, OneSlowRankHoldsUpTheRing) {
  const auto model = network(1, 4);
  const double usual = all_reduce_on(model, Algorithm::ring, 1 << 16).seconds;
  model->slow_rank = 2;
  model->slow_factor = 3;
  const double slowed = all_reduce_on(model, Algorithm::ring, 1 << 16).seconds;
  EXPECT_GT(slowed, 2.5 * usual);
  EXPECT_LT(slowed, 3 * usual);
}

TEST(ModelledNetwork, IsTheSameEveryTime) {
  const auto model = network(2, 4, 10);
  model->jitter = 0.3;
  const double once = all_reduce_on(model, Algorithm::halving, 5000).seconds;
  EXPECT_EQ(all_reduce_on(model, Algorithm::halving, 5000).seconds, once);
  model->seed = 9;
  EXPECT_NE(all_reduce_on(model, Algorithm::halving, 5000).seconds, once);
}

/// Sixty-four ranks on the cores of this machine.
TEST(ModelledNetwork, CarriesSixtyFourRanks) {
  const Taken taken = all_reduce_on(network(8, 8, 10), Algorithm::hierarchical, 4096);
  EXPECT_GT(taken.seconds, 2 * kLatency);
}

}  // namespace
}  // namespace lockstep::net::testing
