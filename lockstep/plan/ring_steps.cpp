#include "lockstep/plan/ring_steps.h"

#include <algorithm>

namespace lockstep::plan {
namespace {

/// All pairs of two runs, or of one with itself those whose key is not above the query. Keys go
/// down and queries go up, which is the order of both sums at once.
std::vector<GrainPair> pairs_of(LeafRange queries, LeafRange keys, bool above) {
  std::vector<GrainPair> pairs;
  for (int key = keys.hi - 1; key >= keys.lo; --key) {
    for (int query = queries.lo; query < queries.hi; ++query) {
      if (queries != keys || (key > query) == above) pairs.push_back({query, key});
    }
  }
  return pairs;
}

}  // namespace

int context_rank(const ContextPlace& place) {
  return static_cast<int>(std::find(place.by_rank.begin(), place.by_rank.end(), place.local) -
                          place.by_rank.begin());
}

std::vector<RingStep> ring_steps(const ContextPlace& place) {
  const int ranks = static_cast<int>(place.by_rank.size());
  const int rank = context_rank(place);
  std::vector<RingStep> steps;
  for (int s = 0; s <= ranks; ++s) {
    const int visitor = (rank + ranks - s % ranks) % ranks;
    const LeafRange keys = place.by_rank[static_cast<size_t>(visitor)];
    steps.push_back({visitor, pairs_of(place.local, keys, /*above=*/s == ranks)});
  }
  return steps;
}

std::vector<HalfPair> half_pairs(GrainPair pair) {
  const bool same = pair.query == pair.key;
  std::vector<HalfPair> halves;
  if (pair.key <= pair.query) halves.push_back({0, 0, same});
  halves.push_back({1, 0, false});
  if (pair.key >= pair.query) halves.push_back({1, 1, same});
  return halves;
}

}  // namespace lockstep::plan
