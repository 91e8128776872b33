/// The sum tree written as its definition reads: what every plan is compared with in bits.
#pragma once

#include <bit>
#include <cstdint>
#include <random>
#include <vector>

#include "lockstep/plan/leaf_rounds.h"
#include "lockstep/plan/sum_plan.h"
#include "lockstep/plan/sum_tree.h"

namespace lockstep::plan {

template <class Real>
Real reference_sum(const std::vector<Real>& leaves, int lo, int hi) {
  if (hi - lo == 1) return leaves[static_cast<size_t>(lo)];
  int half = 1;
  while (2 * half < hi - lo) half *= 2;
  return reference_sum(leaves, lo, lo + half) + reference_sum(leaves, lo + half, hi);
}

/// Floats of either sign whose magnitudes lie far apart: any other order of adding shows.
template <class Real>
std::vector<Real> unlike_values(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<Real> fraction(Real(-1), Real(1));
  std::vector<Real> values(count);
  for (Real& value : values) {
    value = fraction(random) * static_cast<Real>(1 << (random() % 12));
  }
  return values;
}

/// The sum over `range` of leaves, folded as a rank does that holds them all.
template <class Real>
Real folded(const std::vector<Real>& leaves, LeafRange range) {
  const LeafRounds folds =
      plan_local_folds(plan_leaves(range.size(), 1, LeafAssignment::contiguous), 0);
  std::vector<Real> levels(static_cast<size_t>(folds.levels));
  for (const auto& round : folds.rounds) {
    const RoundNode& leaf = round.at(0);
    levels.at(static_cast<size_t>(leaf.level)) =
        leaves[static_cast<size_t>(range.lo + leaf.leaves.lo)];
    for (const AddStep step : leaf.additions) {
      levels.at(static_cast<size_t>(step.into)) += levels.at(static_cast<size_t>(step.from));
    }
  }
  return levels.at(0);
}

/// Every rank folds its terms, then the additions of the plan are carried out.
template <class Real>
Real evaluated(const std::vector<Real>& leaves, const SumPlan& plan) {
  std::vector<Real> slots;
  for (const TermHolder& term : plan.terms) slots.push_back(folded(leaves, term.leaves));
  for (const AddStep& step : plan.additions) {
    slots.at(static_cast<size_t>(step.into)) += slots.at(static_cast<size_t>(step.from));
  }
  return slots.at(0);
}

inline uint32_t bits(float value) { return std::bit_cast<uint32_t>(value); }
inline uint64_t bits(double value) { return std::bit_cast<uint64_t>(value); }

}  // namespace lockstep::plan
