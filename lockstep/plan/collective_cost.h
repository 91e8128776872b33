/// What collectives cost, as formulas: the second witness beside the counts of a plan.
///
/// Exact where the ranks, halves and chunks divide the elements; elsewhere within the rounding of
/// slices to 16 elements. Source  docs/concepts/collective_algorithms.md
#pragma once

#include "lockstep/plan/collective_steps.h"

namespace lockstep::plan {

struct CollectiveCost {
  int rounds;
  double bytes_sent;  // by the rank that sends most
};

/// `bytes`: of one rank's term. L = ceil(log2 N), K = the largest power of two up to N.
///
///   direct        2 rounds, 2 (N-1)/N bytes          ring         2 (N-1) rounds, 2 (N-1)/N bytes
///   halving       2 log2 N rounds, 2 (N-1)/N bytes; no power of two: 2 log2 K + 1 rounds,
///                 (2 - 1/K) bytes, 2 bytes where N has more than two binary digits that are 1
///   binomial      2 L + chunks - 1 rounds, L bytes
///   tree          2 log2 K + chunks - 1 rounds, 3 bytes from 4 ranks on
///   double_tree   as many rounds, 2 bytes from 4 ranks on
CollectiveCost all_reduce_cost(Algorithm algorithm, int ranks, double bytes, int chunks = 1);

/// Of direct parts: what a rank sends is 2 (N-1)/N bytes, as in a direct all-reduce.
CollectiveCost hierarchical_all_reduce_cost(int hosts, int ranks_per_host, double bytes);

/// `bytes`: of all slices together, which are equal. direct, ring: (N-1)/N bytes in 1 and N-1
/// rounds; bruck the same in L.
///
/// halving takes a round more than its levels, in which slices move between their owners and the
/// ranks that halving leaves them on: all bytes from 3 ranks on, in a gather over no power of two
/// up to 4/3 of them.
CollectiveCost reduce_scatter_cost(Algorithm algorithm, int ranks, double bytes);
CollectiveCost all_gather_cost(Algorithm algorithm, int ranks, double bytes);

/// The root sends most: N-1 times the bytes (direct), L times (binomial), 2 (N-1)/N times
/// (scatter_all_gather).
CollectiveCost broadcast_cost(Algorithm algorithm, int ranks, double bytes, int chunks = 1);
CollectiveCost reduce_cost(Algorithm algorithm, int ranks, double bytes, int chunks = 1);

/// `bytes`: of all blocks of a rank, which are equal. direct, pairwise: (N-1)/N bytes in 1 and N-1
/// rounds; bruck: L rounds, every block as many times as its distance has binary digits that are 1.
CollectiveCost all_to_all_cost(Algorithm algorithm, int ranks, double bytes);

/// Bytes that leave each of `hosts` hosts, which hold runs of `ranks_per_host` ranks.
///
///   direct        2 k (h-1)/h bytes        ring   2 (N-1)/N bytes
///   hierarchical  2 (h-1)/h bytes, of direct parts; halving the same if h and k are powers of two
/// throws  UsageError: another algorithm, or halving of other numbers
double all_reduce_uplink_bytes(Algorithm algorithm, int hosts, int ranks_per_host, double bytes);

}  // namespace lockstep::plan
