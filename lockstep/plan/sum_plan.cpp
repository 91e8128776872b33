#include "lockstep/plan/sum_plan.h"

#include <algorithm>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::plan {
namespace {

int64_t terms_held_by(const SumPlan& plan, int rank) {
  return std::count_if(plan.terms.begin(), plan.terms.end(),
                       [rank](const TermHolder& term) { return term.rank == rank; });
}

int64_t terms_held_elsewhere(const SumPlan& plan, int rank) {
  return static_cast<int64_t>(plan.terms.size()) - terms_held_by(plan, rank);
}

bool travels_inline(const SumPlan& plan, int64_t bytes_of_term) {
  for (int rank = 0; rank < plan.ranks; ++rank) {
    if (terms_held_by(plan, rank) * bytes_of_term > kInlineBytes) return false;
  }
  return true;
}

}  // namespace

ElementRange slice_of(int64_t count, int ranks, int rank, int64_t alignment) {
  LOCKSTEP_ASSERT(count >= 0 && alignment > 0 && 0 <= rank && rank < ranks,
                  "a slice is one of `ranks` parts of a count of elements");
  const int64_t units = count / alignment + (count % alignment != 0 ? 1 : 0);
  const int64_t each = units / ranks;
  const int64_t longer = units % ranks;  // the first `longer` ranks own one unit more
  const auto start = [&](int64_t r) {
    return std::min(count, (r * each + std::min(r, longer)) * alignment);
  };
  return {start(rank), start(rank + 1)};
}

SumPlan plan_sum(int leaves, const std::vector<std::vector<LeafRange>>& terms_by_rank) {
  SumPlan plan;
  plan.leaves = leaves;
  plan.ranks = static_cast<int>(terms_by_rank.size());
  for (int rank = 0; rank < plan.ranks; ++rank) {
    for (const LeafRange leaves_held : terms_by_rank[static_cast<size_t>(rank)]) {
      plan.terms.push_back({rank, leaves_held});
    }
  }
  std::stable_sort(
      plan.terms.begin(), plan.terms.end(),
      [](const TermHolder& a, const TermHolder& b) { return a.leaves.lo < b.leaves.lo; });

  std::vector<LeafRange> ranges;
  for (size_t i = 0; i < plan.terms.size(); ++i) {
    const TermHolder& term = plan.terms[i];
    if (i > 0 && term.leaves.lo < plan.terms[i - 1].leaves.hi) {
      const TermHolder& before = plan.terms[i - 1];
      throw UsageError(base::str("canonical sum: rank ", before.rank, " brings leaves [",
                                 before.leaves.lo, ",", before.leaves.hi, ") and rank ", term.rank,
                                 " brings [", term.leaves.lo, ",", term.leaves.hi,
                                 "): a leaf must be brought once."));
    }
    ranges.push_back(term.leaves);
  }
  plan.additions = evaluation(leaves, ranges);
  return plan;
}

int64_t all_reduce_bytes(const SumPlan& plan, int rank, int64_t count, int64_t bytes_per_element) {
  const int64_t bytes_of_term = count * bytes_per_element;
  if (travels_inline(plan, bytes_of_term)) return terms_held_elsewhere(plan, rank) * bytes_of_term;
  return direct_all_reduce_bytes(plan, rank, count, bytes_per_element);
}

int64_t direct_all_reduce_bytes(const SumPlan& plan, int rank, int64_t count,
                                int64_t bytes_per_element) {
  const int64_t reads_and_writes = terms_held_elsewhere(plan, rank) + (plan.ranks - 1);
  return reads_and_writes * slice_of(count, plan.ranks, rank).size() * bytes_per_element;
}

int64_t direct_reduce_scatter_bytes(const SumPlan& plan, int rank,
                                    const std::vector<int64_t>& counts, int64_t bytes_per_element) {
  return terms_held_elsewhere(plan, rank) * counts[static_cast<size_t>(rank)] * bytes_per_element;
}

int64_t direct_all_gather_bytes(int rank, const std::vector<int64_t>& counts,
                                int64_t bytes_per_element) {
  int64_t elements = 0;
  for (size_t r = 0; r < counts.size(); ++r) {
    if (static_cast<int>(r) != rank) elements += counts[r];
  }
  return elements * bytes_per_element;
}

}  // namespace lockstep::plan
