/// The one order in which terms are added: a binary tree over leaf indices, whoever holds them.
///
///   sum(lo, hi) = sum(lo, mid) + sum(mid, hi),   mid = lo + the largest power of two below hi - lo
///
/// It is what a binary counter folds: carries merge neighbours of equal size, so a rank that
/// receives leaves one by one needs log2(leaves) + 1 buffers (leaf_rounds.h).
///
///           sum(0,6)                 held [1,5) by one rank: its maximal whole subtrees are
///          /        \                [1,2) [2,4) [4,5)  -- three terms, not one sum
///      sum(0,4)   sum(4,6)
///      /     \      /  \             .
///   (0,2)  (2,4)   4    5
///   / \     / \                      .
///  0   1   2   3
///
/// Source  docs/concepts/same_bits.md
#pragma once

#include <bit>
#include <compare>
#include <vector>

namespace lockstep::plan {

/// Leaves lo <= leaf < hi.
struct LeafRange {
  int lo = 0;
  int hi = 0;
  int size() const { return hi - lo; }
  bool contains(const LeafRange& other) const { return lo <= other.lo && other.hi <= hi; }
  auto operator<=>(const LeafRange&) const = default;
};

/// Where the node [lo, hi) is divided; needs hi - lo >= 2.
constexpr int split(int lo, int hi) {
  return lo + static_cast<int>(std::bit_floor(static_cast<unsigned>(hi - lo - 1)));
}

/// The largest nodes of the tree over `leaves` leaves that lie wholly in `held`, in rising order:
/// the terms a rank contributes. Empty for an empty range.
std::vector<LeafRange> maximal_subtrees(int leaves, LeafRange held);

/// One step of evaluating a tree whose nodes `terms` are given: slot[into] += slot[from].
/// Slots 0..n-1 hold the terms. After all steps slot 0 holds the whole sum.
struct AddStep {
  int into;
  int from;
  auto operator<=>(const AddStep&) const = default;
};

/// The additions that make the sum over [0, leaves) from `terms`, in order. `terms` are disjoint
/// nodes of the tree in rising order. A leaf that no term covers is absent: it is skipped, never
/// added as zero. Throws UsageError if two terms overlap or one is no node of the tree.
std::vector<AddStep> evaluation(int leaves, const std::vector<LeafRange>& terms);

}  // namespace lockstep::plan
