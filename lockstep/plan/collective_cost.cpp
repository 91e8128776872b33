#include "lockstep/plan/collective_cost.h"

#include <bit>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/plan/detail/collective_builder.h"

namespace lockstep::plan {
namespace {

int floor_log2(int ranks) { return std::bit_width(static_cast<unsigned>(ranks)) - 1; }
int ceil_log2(int ranks) { return std::bit_width(static_cast<unsigned>(ranks) - 1); }
bool is_power_of_two(int ranks) { return std::has_single_bit(static_cast<unsigned>(ranks)); }

/// (N-1)/N: the part of something evenly divided that is elsewhere.
double others_share(int ranks) { return (ranks - 1.0) / ranks; }

void check_arguments(Collective operation, Algorithm algorithm, int ranks, int chunks) {
  detail::expect_algorithm(operation, algorithm);
  detail::expect_chunks(algorithm, chunks);
  if (ranks < 1) throw UsageError(base::str("a collective of ", ranks, " ranks: at least 1"));
}

CollectiveCost halving_cost(int ranks, double bytes) {
  const int levels = floor_log2(ranks);
  if (is_power_of_two(ranks)) return {2 * levels, 2 * others_share(ranks) * bytes};
  // A block between two others sends its sums down and what it gets back on: nothing is spared.
  const bool has_middle_block = std::popcount(static_cast<unsigned>(ranks)) > 2;
  return {2 * levels + 1, (has_middle_block ? 2.0 : 2.0 - 1.0 / (1 << levels)) * bytes};
}

/// Who has the larger part at every halving sends that part at every doubling.
CollectiveCost gather_by_halving_cost(int ranks, double bytes) {
  if (ranks <= 2) return {ranks - 1, others_share(ranks) * bytes};
  const int levels = floor_log2(ranks);
  int slices = 0;
  for (int level = 1; level <= levels; ++level) slices += (ranks + (1 << level) - 1) >> level;
  const int more = ranks - (1 << levels);  // ranks outside the largest block
  if (more > 0) slices += 2;               // on to the next block
  if (more != 1) slices += 1;              // its own slice, to where doubling starts from
  return {levels + 1, slices * bytes / ranks};
}

/// In each tree an inner node sends up once and down twice, the root only down.
double tree_bytes(Algorithm algorithm, int ranks, double bytes) {
  const bool two = algorithm == Algorithm::double_tree;
  if (ranks == 2) return bytes;
  if (ranks == 3) return two ? 1.5 * bytes : 2 * bytes;
  return two ? 2 * bytes : 3 * bytes;
}

}  // namespace

CollectiveCost all_reduce_cost(Algorithm algorithm, int ranks, double bytes, int chunks) {
  check_arguments(Collective::all_reduce, algorithm, ranks, chunks);
  if (algorithm == Algorithm::hierarchical) {
    throw UsageError(
        "the cost of hierarchical depends on the hosts: call hierarchical_all_reduce_cost");
  }
  if (ranks == 1) return {0, 0};
  if (algorithm == Algorithm::direct) return {2, 2 * others_share(ranks) * bytes};
  if (algorithm == Algorithm::ring) return {2 * (ranks - 1), 2 * others_share(ranks) * bytes};
  if (algorithm == Algorithm::halving) return halving_cost(ranks, bytes);
  if (algorithm == Algorithm::binomial) {
    return {2 * ceil_log2(ranks) + chunks - 1, ceil_log2(ranks) * bytes};
  }
  return {2 * floor_log2(ranks) + chunks - 1, tree_bytes(algorithm, ranks, bytes)};
}

CollectiveCost hierarchical_all_reduce_cost(int hosts, int ranks_per_host, double bytes) {
  const auto inside = all_reduce_cost(Algorithm::direct, ranks_per_host, bytes);
  const auto across = all_reduce_cost(Algorithm::direct, hosts, bytes / ranks_per_host);
  return {inside.rounds + across.rounds, inside.bytes_sent + across.bytes_sent};
}

CollectiveCost reduce_scatter_cost(Algorithm algorithm, int ranks, double bytes) {
  check_arguments(Collective::reduce_scatter, algorithm, ranks, 1);
  const double share = others_share(ranks) * bytes;
  if (algorithm == Algorithm::direct) return {ranks > 1 ? 1 : 0, share};
  if (algorithm == Algorithm::ring) return {ranks - 1, share};
  if (ranks <= 2) return {ranks - 1, share};
  // Who keeps a slice to the end sends it to its owner; who folds sends all it has.
  return {floor_log2(ranks) + (is_power_of_two(ranks) ? 1 : 2), bytes};
}

CollectiveCost all_gather_cost(Algorithm algorithm, int ranks, double bytes) {
  check_arguments(Collective::all_gather, algorithm, ranks, 1);
  const double share = others_share(ranks) * bytes;
  if (algorithm == Algorithm::direct) return {ranks > 1 ? 1 : 0, share};
  if (algorithm == Algorithm::ring) return {ranks - 1, share};
  if (algorithm == Algorithm::bruck) return {ceil_log2(ranks), share};
  return gather_by_halving_cost(ranks, bytes);
}

CollectiveCost broadcast_cost(Algorithm algorithm, int ranks, double bytes, int chunks) {
  check_arguments(Collective::broadcast, algorithm, ranks, chunks);
  if (ranks == 1) return {0, 0};
  if (algorithm == Algorithm::direct) return {1, (ranks - 1) * bytes};
  if (algorithm == Algorithm::binomial) {
    return {ceil_log2(ranks) + chunks - 1, ceil_log2(ranks) * bytes};
  }
  return {ceil_log2(ranks) + ranks - 1, 2 * others_share(ranks) * bytes};
}

CollectiveCost reduce_cost(Algorithm algorithm, int ranks, double bytes, int chunks) {
  check_arguments(Collective::reduce, algorithm, ranks, chunks);
  if (ranks == 1) return {0, 0};
  return {ceil_log2(ranks) + chunks - 1, bytes};
}

CollectiveCost all_to_all_cost(Algorithm algorithm, int ranks, double bytes) {
  check_arguments(Collective::all_to_all, algorithm, ranks, 1);
  if (algorithm == Algorithm::direct) return {ranks > 1 ? 1 : 0, others_share(ranks) * bytes};
  if (algorithm == Algorithm::pairwise) return {ranks - 1, others_share(ranks) * bytes};
  int moves = 0;
  for (int distance = 1; distance < ranks; ++distance) {
    moves += std::popcount(static_cast<unsigned>(distance));
  }
  return {ceil_log2(ranks), moves * bytes / ranks};
}

double all_reduce_uplink_bytes(Algorithm algorithm, int hosts, int ranks_per_host, double bytes) {
  if (hosts < 1 || ranks_per_host < 1) {
    throw UsageError(base::str(hosts, " hosts of ", ranks_per_host, " ranks: at least 1 of each"));
  }
  const double across = 2 * others_share(hosts) * bytes;
  const bool halves_evenly = is_power_of_two(hosts) && is_power_of_two(ranks_per_host);
  if (algorithm == Algorithm::direct) return ranks_per_host * across;
  if (algorithm == Algorithm::hierarchical) return across;
  if (algorithm == Algorithm::halving && halves_evenly) return across;
  if (algorithm == Algorithm::ring) {
    return hosts == 1 ? 0 : 2 * others_share(hosts * ranks_per_host) * bytes;
  }
  throw UsageError(base::str("there is no formula for what ", name_of(algorithm), " sends between ",
                             hosts, " hosts of ", ranks_per_host,
                             " ranks.\n  Count it: plan::bytes_over_uplink."));
}

}  // namespace lockstep::plan
