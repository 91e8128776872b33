/// How ranks that sum every round's leaves at once keep to the order of the sum tree.
///
/// A replica's ranks take the leaves of its run in turn. What a round's leaves have in common are
/// the maximal whole subtrees in them, its nodes: each is summed over the ranks as it stands, and
/// every owner folds the sums of nodes as a binary counter folds leaves.
///
///   3 ranks, leaves [0,4):  round 0: nodes (0,2) 2   round 1: node 3, then 2+3, then (0,2)+(2,4)
///
/// Source  docs/concepts/zero.md
#pragma once

#include <vector>

#include "lockstep/plan/sum_tree.h"

namespace lockstep::plan {

/// A node of a round, and what the fold stack does with its sum.
struct RoundNode {
  LeafRange leaves;
  int level = 0;   // of the stack, where the sum is written
  int merges = 0;  // after it: each adds the top level into the one below
  auto operator<=>(const RoundNode&) const = default;
};

struct LeafRounds {
  std::vector<std::vector<RoundNode>> rounds;
  int levels = 0;               // that the stack ever uses at once
  std::vector<LeafRange> kept;  // what the levels hold after the last round, from level 0 up
};

/// The rounds in which `ranks` ranks go through the leaves of `run`, of a step of `grains` leaves.
LeafRounds plan_leaf_rounds(int grains, LeafRange run, int ranks);

}  // namespace lockstep::plan
