#include "lockstep/plan/leaf_rounds.h"

#include <algorithm>

namespace lockstep::plan {
namespace {

/// Whether `low` and `high` are the two halves of a node of the tree.
bool are_halves(int grains, LeafRange low, LeafRange high) {
  if (low.hi != high.lo || split(low.lo, high.hi) != low.hi) return false;
  return maximal_subtrees(grains, {low.lo, high.hi}).size() == 1;
}

}  // namespace

LeafRounds plan_leaf_rounds(int grains, LeafRange run, int ranks) {
  LeafRounds plan;
  std::vector<LeafRange>& stack = plan.kept;
  for (int first = run.lo; first < run.hi; first += ranks) {
    std::vector<RoundNode>& nodes = plan.rounds.emplace_back();
    const LeafRange round{first, std::min(first + ranks, run.hi)};
    for (const LeafRange node : maximal_subtrees(grains, round)) {
      RoundNode placed{.leaves = node, .level = static_cast<int>(stack.size())};
      stack.push_back(node);
      plan.levels = std::max(plan.levels, static_cast<int>(stack.size()));
      while (stack.size() > 1 && are_halves(grains, stack[stack.size() - 2], stack.back())) {
        const int hi = stack.back().hi;
        stack.pop_back();
        stack.back().hi = hi;
        ++placed.merges;
      }
      nodes.push_back(placed);
    }
  }
  return plan;
}

}  // namespace lockstep::plan
