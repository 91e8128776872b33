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
  std::vector<LeafRounds::Kept>& stack = plan.kept;
  std::vector<bool> used;  // by level
  const auto lowest_free = [&] {
    const auto free = std::find(used.begin(), used.end(), false);
    const auto level = free - used.begin();
    if (free == used.end()) used.push_back(false);
    used[static_cast<size_t>(level)] = true;
    return static_cast<int>(level);
  };
  for (int first = run.lo; first < run.hi; first += ranks) {
    std::vector<RoundNode>& nodes = plan.rounds.emplace_back();
    const LeafRange round{first, std::min(first + ranks, run.hi)};
    for (const LeafRange node : maximal_subtrees(grains, round)) {
      nodes.push_back({.leaves = node, .level = lowest_free(), .additions = {}});
    }
    for (RoundNode& node : nodes) {
      stack.push_back({node.leaves, node.level});
      while (stack.size() > 1 &&
             are_halves(grains, stack[stack.size() - 2].leaves, stack.back().leaves)) {
        const LeafRounds::Kept top = stack.back();
        stack.pop_back();
        stack.back().leaves.hi = top.leaves.hi;
        node.additions.push_back({.into = stack.back().level, .from = top.level});
      }
    }
    // Levels that were added up are free for the next round.
    used.assign(used.size(), false);
    for (const LeafRounds::Kept& kept : stack) used[static_cast<size_t>(kept.level)] = true;
  }
  plan.levels = static_cast<int>(used.size());
  return plan;
}

}  // namespace lockstep::plan
