/// How sums over leaves keep to the order of the sum tree while the leaves come in rounds.
///
/// Folded locally, a round is a leaf of the rank, and what is left in the end are its terms: the
/// maximal whole subtrees of what it holds.
///
///   leaves [0,4):  leaf 0 to level 0   1 to level 1, 0 += 1   2 to level 1   3 to level 2,
///                  1 += 2, 0 += 1: the binary counter
///
/// A replica's ranks take the leaves of its run in turn. What a round's leaves have in common are
/// the maximal whole subtrees in them, its nodes: each is summed over the ranks as it stands, and
/// every owner folds the sums of nodes as a binary counter folds leaves. The sums of one round are
/// under way together, so each has a level of memory of its own until they are folded.
///
///   3 ranks, leaves [0,4):  round 0: nodes (0,2) 2   round 1: node 3, then 2+3, then (0,2)+(2,4)
///
/// Of several context grains a round has the leaves of each; nodes meet where they are neighbours.
///
/// Source  docs/concepts/zero.md
#pragma once

#include <vector>

#include "lockstep/plan/batch_plan.h"

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

/// The rounds of a rank's own leaves, one a round, all its context grains of it.
LeafRounds plan_local_folds(const LeafSchedule& leaves, int rank);

/// The rounds of the leaves of `run`, `each` in a round, all context grains of them.
LeafRounds plan_leaf_rounds(const LeafSchedule& leaves, LeafRange run, int each);

}  // namespace lockstep::plan
