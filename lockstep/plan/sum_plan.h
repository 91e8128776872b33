/// One canonical sum over the ranks of a group: who brings which terms, in which order they are
/// added, and the bytes of carrying it out directly over memory that peers can read and write.
///
/// Direct: rank r owns slice r of the elements. It reads that slice of every term, adds them in the
/// order of the sum tree, and writes the result to every rank. Canonical: the additions are those
/// of the tree, whoever holds the leaves.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/plan/sum_tree.h"

namespace lockstep::plan {

struct ElementRange {
  int64_t lo = 0;
  int64_t hi = 0;
  int64_t size() const { return hi - lo; }
  auto operator<=>(const ElementRange&) const = default;
};

/// Slice `rank` of `count` elements over `ranks`: multiples of `alignment` elements, except where
/// the count ends. Slices cover every element exactly once; later ones may be empty.
ElementRange slice_of(int64_t count, int ranks, int rank, int64_t alignment = 16);

/// The terms of one canonical sum, over all ranks of a group.
struct TermHolder {
  int rank = 0;
  LeafRange leaves;
};

struct SumPlan {
  int leaves = 0;
  int ranks = 0;
  std::vector<TermHolder> terms;   // in rising order of leaves
  std::vector<AddStep> additions;  // over `terms`
};

/// Throws UsageError if the terms of different ranks overlap or one is no node of the tree.
SumPlan plan_sum(int leaves, const std::vector<std::vector<LeafRange>>& terms_by_rank);

/// The terms of a rank that fit into this many bytes travel in the descriptor that announces the
/// call: one phase, every rank adds all terms itself.
inline constexpr int64_t kInlineBytes = 256;

/// Bytes of peers' memory that `rank` reads and writes in an all-reduce: inline if every rank's
/// terms fit into kInlineBytes (it reads each term held elsewhere), else direct.
int64_t all_reduce_bytes(const SumPlan& plan, int rank, int64_t count, int64_t bytes_per_element);

/// Bytes of peers' memory that `rank` reads and writes in a direct all-reduce of `count` elements:
/// it reads its slice of each term held elsewhere and writes it to each of the other ranks.
/// With one term a rank: 2 (N-1)/N * bytes.
int64_t direct_all_reduce_bytes(const SumPlan& plan, int rank, int64_t count,
                                int64_t bytes_per_element);

/// The same for a rank's own part of a reduce-scatter (reads only) with slices `counts` by rank.
int64_t direct_reduce_scatter_bytes(const SumPlan& plan, int rank,
                                    const std::vector<int64_t>& counts, int64_t bytes_per_element);

/// Bytes of peers' memory that `rank` reads in an all-gather of `counts[r]` elements from each
/// rank.
int64_t direct_all_gather_bytes(int rank, const std::vector<int64_t>& counts,
                                int64_t bytes_per_element);

}  // namespace lockstep::plan
