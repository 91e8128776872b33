/// How ranks that sum every round's leaves at once keep to the order of the sum tree.
///
/// A replica's ranks take the leaves of its run in turn. What a round's leaves have in common are
/// the maximal whole subtrees in them, its nodes: each is summed over the ranks as it stands, and
/// every owner folds the sums of nodes as a binary counter folds leaves. The sums of one round are
/// under way together, so each has a level of memory of its own until they are folded.
///
///   3 ranks, leaves [0,4):  round 0: nodes (0,2) 2   round 1: node 3, then 2+3, then (0,2)+(2,4)
///
/// Source  docs/concepts/zero.md
#pragma once

#include <vector>

#include "lockstep/plan/sum_tree.h"

namespace lockstep::plan {

/// A node of a round: where its sum is written, and what is added once it is there.
struct RoundNode {
  LeafRange leaves;
  int level = 0;
  std::vector<AddStep> additions;  // of levels; after one, `from` is free
  bool operator==(const RoundNode&) const = default;
};

struct LeafRounds {
  std::vector<std::vector<RoundNode>> rounds;
  int levels = 0;  // that are ever used at once

  /// A node that is left after the last round, and its level; the first one's is 0.
  struct Kept {
    LeafRange leaves;
    int level = 0;
    bool operator==(const Kept&) const = default;
  };
  std::vector<Kept> kept;  // in rising order
};

/// The rounds in which `ranks` ranks go through the leaves of `run`, of a step of `grains` leaves.
LeafRounds plan_leaf_rounds(int grains, LeafRange run, int ranks);

}  // namespace lockstep::plan
