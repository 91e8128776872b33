#include "lockstep/plan/tensor_place.h"

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::plan {

TensorPlace place_of(int grains, int ranks, int rank, bool sequence) {
  LOCKSTEP_ASSERT(ranks > 0 && 0 <= rank && rank < ranks, "a rank of its tensor group");
  if (grains < ranks) {
    throw UsageError(base::str(grains, " tensor grains are fewer than the ", ranks,
                               " ranks of the tensor group: a rank would have nothing to compute.",
                               "\n  Set parallel.tensor to ", grains,
                               " or less, or numerics.tensor_grains to ", ranks, " or more."));
  }
  TensorPlace place;
  place.grains = grains;
  place.sequence = sequence;
  place.by_rank.clear();
  for (int r = 0; r < ranks; ++r) {
    const ElementRange run = slice_of(grains, ranks, r, /*alignment=*/1);
    place.by_rank.push_back({static_cast<int>(run.lo), static_cast<int>(run.hi)});
  }
  place.local = place.by_rank[static_cast<size_t>(rank)];
  return place;
}

SumPlan grain_sum_plan(const TensorPlace& place) {
  std::vector<std::vector<LeafRange>> terms;
  for (const LeafRange held : place.by_rank) terms.push_back(maximal_subtrees(place.grains, held));
  return plan_sum(place.grains, terms);
}

}  // namespace lockstep::plan
