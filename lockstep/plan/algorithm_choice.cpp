#include "lockstep/plan/algorithm_choice.h"

#include <algorithm>
#include <bit>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/plan/collective_cost.h"
#include "lockstep/plan/tuned_table.h"

namespace lockstep::plan {
namespace {

double seconds_of(const CollectiveCost& cost, const Link& link) {
  return cost.rounds * link.latency_s + cost.bytes_sent / link.bytes_per_second;
}

const Link& slowest(const TwoLevels& network) {
  if (network.hosts == 1) return network.inside;
  if (network.ranks_per_host == 1) return network.across;
  return network.inside.is_slower_than(network.across) ? network.inside : network.across;
}

/// Up the tree and down again. In one piece every level takes all bytes twice; chunks let the way
/// down follow the way up, until only the root's link counts, which carries them for every level.
double binomial_seconds(int ranks, double bytes, int chunks, const Link& link) {
  const CollectiveCost cost = all_reduce_cost(Algorithm::binomial, ranks, bytes, chunks);
  return cost.rounds * link.latency_s +
         (1 + 1.0 / chunks) * cost.bytes_sent / link.bytes_per_second;
}

double flat_all_reduce_seconds(Algorithm algorithm, int ranks, double bytes, int chunks,
                               const Link& link) {
  if (algorithm == Algorithm::tree || algorithm == Algorithm::double_tree) {
    throw UsageError(base::str("there is no formula for the time of ", name_of(algorithm),
                               ".\n  Measure it: lockstep bench --algorithm ", name_of(algorithm)));
  }
  if (algorithm == Algorithm::binomial) return binomial_seconds(ranks, bytes, chunks, link);
  return seconds_of(all_reduce_cost(algorithm, ranks, bytes, chunks), link);
}

double all_reduce_seconds(Algorithm algorithm, const TwoLevels& network, double bytes, int chunks) {
  const int k = network.ranks_per_host;
  if (algorithm == Algorithm::hierarchical) {
    return seconds_of(all_reduce_cost(Algorithm::direct, k, bytes), network.inside) +
           seconds_of(all_reduce_cost(Algorithm::direct, network.hosts, bytes / k), network.across);
  }
  const bool by_level = std::has_single_bit(static_cast<unsigned>(k)) && chunks == 1;
  if (by_level && (algorithm == Algorithm::halving || algorithm == Algorithm::binomial)) {
    // Halving has a k-th of the bytes left when it leaves the host.
    const double left = algorithm == Algorithm::halving ? bytes / k : bytes;
    return flat_all_reduce_seconds(algorithm, k, bytes, chunks, network.inside) +
           flat_all_reduce_seconds(algorithm, network.hosts, left, chunks, network.across);
  }
  return flat_all_reduce_seconds(algorithm, network.ranks(), bytes, chunks, slowest(network));
}

}  // namespace

TwoLevels two_levels(const Placement& placement) {
  std::vector<std::vector<int>> by_host(placement.topology.hosts.size());
  for (int rank = 0; rank < placement.ranks(); ++rank) {
    by_host[static_cast<size_t>(placement.seats[static_cast<size_t>(rank)].host)].push_back(rank);
  }
  std::erase_if(by_host, [](const auto& host) { return host.empty(); });
  TwoLevels network{.hosts = static_cast<int>(by_host.size()),
                    .ranks_per_host = static_cast<int>(by_host.at(0).size()),
                    .inside = placement.topology.link(LinkLevel::cache),
                    .across = placement.topology.link(LinkLevel::network)};
  for (const std::vector<int>& host : by_host) {
    if (host.size() != by_host[0].size()) {
      throw UsageError(base::str("a host has ", by_host[0].size(), " ranks and another ",
                                 host.size(), ".\n  The formulas are for hosts that are alike."));
    }
    for (const int rank : host) {
      if (rank == host[0]) continue;
      const Link& link = link_between(placement, host[0], rank);
      if (link.is_slower_than(network.inside)) network.inside = link;
    }
  }
  return network;
}

double expected_seconds(Collective operation, Algorithm algorithm, const TwoLevels& network,
                        double bytes, int chunks) {
  const int ranks = network.ranks();
  switch (operation) {
    case Collective::all_reduce:
      return all_reduce_seconds(algorithm, network, bytes, chunks);
    case Collective::reduce_scatter:
      return seconds_of(reduce_scatter_cost(algorithm, ranks, bytes), slowest(network));
    case Collective::all_gather:
      return seconds_of(all_gather_cost(algorithm, ranks, bytes), slowest(network));
    case Collective::broadcast:
      return seconds_of(broadcast_cost(algorithm, ranks, bytes, chunks), slowest(network));
    case Collective::reduce:
      return seconds_of(reduce_cost(algorithm, ranks, bytes, chunks), slowest(network));
    case Collective::all_to_all:
      return seconds_of(all_to_all_cost(algorithm, ranks, bytes), slowest(network));
  }
  return 0;
}

Algorithm cheapest(Collective operation, const TwoLevels& network, double bytes) {
  std::vector<Algorithm> known = candidates(operation, network.ranks(), network.hosts);
  std::erase(known, Algorithm::tree);
  std::erase(known, Algorithm::double_tree);
  return *std::min_element(known.begin(), known.end(), [&](Algorithm a, Algorithm b) {
    return expected_seconds(operation, a, network, bytes) <
           expected_seconds(operation, b, network, bytes);
  });
}

AlgorithmTable cheapest_by_size(Collective operation, const TwoLevels& network,
                                const std::vector<int64_t>& sizes) {
  AlgorithmTable table;
  int64_t before = 0;
  for (const int64_t bytes : sizes) {
    const Algorithm algorithm = cheapest(operation, network, static_cast<double>(bytes));
    if (table.rules.empty() || table.rules.back().algorithm != algorithm) {
      if (!table.rules.empty()) table.rules.back().most_bytes = before;
      table.rules.push_back({operation, algorithm});
    }
    before = bytes;
  }
  return table;
}

}  // namespace lockstep::plan
