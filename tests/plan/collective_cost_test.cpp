// Formulas and the counts of plans agree: exactly for sizes that divide, else within slice
// rounding.

#include "lockstep/plan/collective_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "lockstep/base/error.h"
#include "tests/plan/collective_cases.h"

namespace lockstep::plan {
namespace {

constexpr int64_t kBytes = 4;  // of an element
constexpr int kChunks = 3;

int64_t most_bytes_sent(const CollectivePlan& plan) {
  int64_t most = 0;
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    most = std::max(most, bytes_sent(plan, rank, kBytes));
  }
  return most;
}

int last_round(const CollectivePlan& plan) {
  int last = -1;
  for (const RankSteps& steps : plan.by_rank) {
    if (!steps.rounds.empty()) last = std::max(last, steps.rounds.back().number);
  }
  return last;
}

void expect_cost(const CollectivePlan& plan, const CollectiveCost& cost) {
  const std::string label =
      base::str(name_of(plan.operation), " ", name_of(plan.algorithm), " over ", plan.ranks());
  EXPECT_EQ(num_rounds(plan), cost.rounds) << label;
  // No gaps: but bruck packs before its first round, and pairwise copies even where nobody sends.
  if (plan.operation != Collective::all_to_all) {
    EXPECT_EQ(last_round(plan) + 1, cost.rounds) << label;
  }
  // 2 - 1/K and its like are exact in binary; n/N may be off by a rounding.
  EXPECT_NEAR(static_cast<double>(most_bytes_sent(plan)), cost.bytes_sent, 1e-6) << label;
}

/// Elements that ranks, halves, powers of two below and chunks divide into units of 16.
int64_t divisible(int ranks) {
  const int64_t largest_block = std::bit_floor(static_cast<unsigned>(ranks));
  return 16 * std::lcm(int64_t{2 * kChunks} * ranks, largest_block);
}

TEST(CollectiveCost, AllReduceAgreesWithThePlans) {
  for (int ranks = 1; ranks <= 40; ++ranks) {
    const int64_t count = divisible(ranks);
    for (const Algorithm algorithm : plain_all_reduces()) {
      const int chunks = has_chunks(algorithm) ? kChunks : 1;
      expect_cost(plan_all_reduce(algorithm, ranks, count, chunks),
                  all_reduce_cost(algorithm, ranks, static_cast<double>(count * kBytes), chunks));
    }
  }
}

TEST(CollectiveCost, OtherCollectivesAgreeWithTheirPlans) {
  for (int ranks = 1; ranks <= 40; ++ranks) {
    const int64_t count = divisible(ranks);
    const auto bytes = static_cast<double>(count * kBytes);
    const std::vector<int64_t> counts(static_cast<size_t>(ranks), count / ranks);
    const int root = ranks / 3;
    for (const Algorithm algorithm : algorithms_of(Collective::reduce_scatter)) {
      expect_cost(plan_reduce_scatter(algorithm, counts),
                  reduce_scatter_cost(algorithm, ranks, bytes));
    }
    for (const Algorithm algorithm : algorithms_of(Collective::all_gather)) {
      expect_cost(plan_all_gather(algorithm, counts), all_gather_cost(algorithm, ranks, bytes));
    }
    for (const Algorithm algorithm : algorithms_of(Collective::broadcast)) {
      const int chunks = has_chunks(algorithm) ? kChunks : 1;
      // The formula of the binomial tree is that of a root that sends in every level: rank 0.
      const int from = algorithm == Algorithm::binomial ? 0 : root;
      expect_cost(plan_broadcast(algorithm, ranks, from, count, chunks),
                  broadcast_cost(algorithm, ranks, bytes, chunks));
    }
    expect_cost(plan_reduce(Algorithm::binomial, ranks, 0, count, kChunks),
                reduce_cost(Algorithm::binomial, ranks, bytes, kChunks));
    for (const Algorithm algorithm : algorithms_of(Collective::all_to_all)) {
      expect_cost(plan_all_to_all(algorithm, equal_splits(ranks, count / ranks)),
                  all_to_all_cost(algorithm, ranks, bytes));
    }
  }
}

TEST(CollectiveCost, OddSizesAgreeWithinTheRoundingOfSlices) {
  for (int ranks = 2; ranks <= 24; ++ranks) {
    for (const int64_t count : {1009, 20011}) {
      for (const Algorithm algorithm : plain_all_reduces()) {
        const auto cost = all_reduce_cost(algorithm, ranks, static_cast<double>(count * kBytes));
        const auto counted =
            static_cast<double>(most_bytes_sent(plan_all_reduce(algorithm, ranks, count)));
        // Each of at most 2 N messages is rounded by at most one unit of 16 elements.
        EXPECT_NEAR(counted, cost.bytes_sent, 2 * ranks * 16 * kBytes)
            << name_of(algorithm) << " of " << count << " over " << ranks;
      }
    }
  }
}

/// Bytes over every uplink; they must be alike.
double uplink_bytes(const CollectivePlan& plan, int ranks_per_host) {
  std::vector<int> host_of_rank;
  for (int rank = 0; rank < plan.ranks(); ++rank) host_of_rank.push_back(rank / ranks_per_host);
  const auto bytes = bytes_over_uplink(plan, host_of_rank, kBytes);
  for (const int64_t one : bytes) EXPECT_EQ(one, bytes[0]);
  return static_cast<double>(bytes[0]);
}

TEST(CollectiveCost, HierarchicalAgreesWithThePlans) {
  for (int hosts = 1; hosts <= 9; ++hosts) {
    for (int per_host = 1; per_host <= 9; ++per_host) {
      const int64_t count = 16 * hosts * per_host;
      const auto bytes = static_cast<double>(count * kBytes);
      const auto plan = plan_hierarchical_all_reduce(runs_of(per_host, hosts * per_host), count);
      expect_cost(plan, hierarchical_all_reduce_cost(hosts, per_host, bytes));
      EXPECT_NEAR(uplink_bytes(plan, per_host),
                  all_reduce_uplink_bytes(Algorithm::hierarchical, hosts, per_host, bytes), 1e-6);
    }
  }
}

TEST(CollectiveCost, HalvingInsideHostsMovesNoSliceTwice) {
  for (const int hosts : {1, 2, 4, 8}) {
    for (const int per_host : {1, 2, 4, 8}) {
      const int ranks = hosts * per_host;
      const int64_t count = 16 * ranks;
      const auto plan = plan_hierarchical_all_reduce(runs_of(per_host, ranks), count,
                                                     Algorithm::halving, Algorithm::halving);
      const auto bytes = static_cast<double>(count * kBytes);
      expect_cost(plan, all_reduce_cost(Algorithm::halving, ranks, bytes));
      EXPECT_NEAR(uplink_bytes(plan, per_host),
                  all_reduce_uplink_bytes(Algorithm::hierarchical, hosts, per_host, bytes), 1e-6);
    }
  }
}

TEST(CollectiveCost, UplinksOfFlatAlgorithms) {
  for (int hosts = 1; hosts <= 8; ++hosts) {
    for (int per_host = 1; per_host <= 8; ++per_host) {
      const int ranks = hosts * per_host;
      const int64_t count = 16 * ranks;
      const auto bytes = static_cast<double>(count * kBytes);
      const auto expect = [&](Algorithm algorithm) {
        EXPECT_NEAR(uplink_bytes(plan_all_reduce(algorithm, ranks, count), per_host),
                    all_reduce_uplink_bytes(algorithm, hosts, per_host, bytes), 1e-6)
            << name_of(algorithm) << ", " << hosts << " hosts of " << per_host;
      };
      expect(Algorithm::direct);
      expect(Algorithm::ring);
      if (std::has_single_bit(static_cast<unsigned>(hosts)) &&
          std::has_single_bit(static_cast<unsigned>(per_host))) {
        expect(Algorithm::halving);
      }
    }
  }
}

TEST(CollectiveCost, RefusesWhatItHasNoFormulaFor) {
  EXPECT_THROW(all_reduce_cost(Algorithm::hierarchical, 4, 64), UsageError);
  EXPECT_THROW(all_reduce_cost(Algorithm::bruck, 4, 64), UsageError);
  EXPECT_THROW(all_reduce_cost(Algorithm::ring, 4, 64, 2), UsageError);
  EXPECT_THROW(all_reduce_cost(Algorithm::ring, 0, 64), UsageError);
  EXPECT_THROW(all_reduce_uplink_bytes(Algorithm::tree, 2, 2, 64), UsageError);
  EXPECT_THROW(all_reduce_uplink_bytes(Algorithm::halving, 3, 2, 64), UsageError);
  EXPECT_THROW(all_reduce_uplink_bytes(Algorithm::direct, 0, 2, 64), UsageError);
}

}  // namespace
}  // namespace lockstep::plan
