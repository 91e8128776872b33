#include "lockstep/plan/leaf_rounds.h"

#include <algorithm>

namespace lockstep::plan {
namespace {

/// Whether `low` and `high` are the two halves of a node of the tree.
bool are_halves(int grains, LeafRange low, LeafRange high) {
  if (low.hi != high.lo || split(low.lo, high.hi) != low.hi) return false;
  return maximal_subtrees(grains, {low.lo, high.hi}).size() == 1;
}

/// Adds up the neighbours of the tree that are both there, as long as there are any. The sums that
/// are kept are in rising order.
std::vector<AddStep> join_neighbours(int grains, std::vector<LeafRounds::Kept>& kept) {
  std::vector<AddStep> additions;
  for (size_t i = 0; i + 1 < kept.size();) {
    if (!are_halves(grains, kept[i].leaves, kept[i + 1].leaves)) {
      ++i;
      continue;
    }
    additions.push_back({.into = kept[i].level, .from = kept[i + 1].level});
    kept[i].leaves.hi = kept[i + 1].leaves.hi;
    kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    if (i > 0) --i;
  }
  return additions;
}

using Nodes = std::vector<LeafRange>;  // nodes whose sums are under way together

LeafRounds plan_rounds(int grains, const std::vector<Nodes>& rounds) {
  LeafRounds plan;
  std::vector<LeafRounds::Kept>& kept = plan.kept;
  std::vector<bool> used;  // by level
  const auto lowest_free = [&] {
    const auto free = std::find(used.begin(), used.end(), false);
    const auto level = free - used.begin();
    if (free == used.end()) used.push_back(false);
    used[static_cast<size_t>(level)] = true;
    return static_cast<int>(level);
  };
  for (const Nodes& round : rounds) {
    std::vector<RoundNode>& nodes = plan.rounds.emplace_back();
    for (const LeafRange node : round) {
      nodes.push_back({.leaves = node, .level = lowest_free(), .additions = {}});
    }
    for (RoundNode& node : nodes) {
      const auto behind = std::find_if(kept.begin(), kept.end(), [&](const auto& other) {
        return other.leaves.lo > node.leaves.lo;
      });
      kept.insert(behind, {node.leaves, node.level});
      node.additions = join_neighbours(grains, kept);
    }
    // Levels that were added up are free for the next round.
    used.assign(used.size(), false);
    for (const LeafRounds::Kept& sum : kept) used[static_cast<size_t>(sum.level)] = true;
  }
  plan.levels = static_cast<int>(used.size());
  return plan;
}

}  // namespace

LeafRounds plan_local_folds(const LeafSchedule& leaves, int rank) {
  std::vector<Nodes> rounds;
  const LeafRange own = leaves.context_of(rank);
  for (const int leaf : leaves.leaves_of(rank)) {
    Nodes& round = rounds.emplace_back();
    for (int context = own.lo; context < own.hi; ++context) {
      const int of_sums = leaves.sum_leaf(leaf, context);
      round.push_back({of_sums, of_sums + 1});
    }
  }
  return plan_rounds(leaves.sum_leaves(), rounds);
}

LeafRounds plan_leaf_rounds(const LeafSchedule& leaves, LeafRange run, int each) {
  std::vector<Nodes> rounds;
  for (int first = run.lo; first < run.hi; first += each) {
    Nodes& round = rounds.emplace_back();
    for (const LeafRange part : leaves.sum_runs({first, std::min(first + each, run.hi)})) {
      const std::vector<LeafRange> nodes = maximal_subtrees(leaves.sum_leaves(), part);
      round.insert(round.end(), nodes.begin(), nodes.end());
    }
  }
  return plan_rounds(leaves.sum_leaves(), rounds);
}

}  // namespace lockstep::plan
