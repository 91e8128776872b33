/// The order in which queries and keys meet where keys and values travel round a ring of ranks.
///
/// In step s rank r has the keys of rank r - s, as runs move on from rank to rank + 1; in the last
/// step, one for each rank later, its own are at home again. Of the grains that this brings
/// together a pair is (query grain, key grain), and whoever holds them
///
///   query grain i meets keys      i, i - 1, ..., 0, C - 1, ..., i + 1
///   key grain j   meets queries   j, j + 1, ..., C - 1, 0, ..., j - 1
///
///   C = 4 on 3 ranks     step 0        1          2         home
///     rank 0 (0 1)       11 00 10      03 13      02 12     01
///     rank 1 (2)         22            21 20      23        -
///     rank 2 (3)         33            32         31 30     -
///
/// So a sum over keys (the result, the gradient of queries) and a sum over queries (the gradients
/// of keys and values, which travel with them) is a chain over grains that no layout changes.
///
/// Work    a pair is two blocks of half-grains, three if it is a grain with itself: 2 C + 1 blocks
///         for every grain                              test: RingSteps.EveryGrainDoesItsShare
/// Source  Liu et al. 2023, arXiv:2310.01889;  docs/concepts/context.md
#pragma once

#include <compare>
#include <vector>

#include "lockstep/plan/context_place.h"

namespace lockstep::plan {

struct GrainPair {
  int query = 0;
  int key = 0;
  auto operator<=>(const GrainPair&) const = default;
};

struct RingStep {
  int visitor = 0;  // the rank whose keys and values are here
  std::vector<GrainPair> pairs;
};

/// Of the rank whose place it is: a step for each rank, and one more when its own keys are home.
std::vector<RingStep> ring_steps(const ContextPlace& place);

/// The rank of `place` in its context group.
int context_rank(const ContextPlace& place);

/// Half-grains of a pair that meet under a causal mask: 0 is the low half, 1 the high one.
struct HalfPair {
  int query = 0;
  int key = 0;
  bool diagonal = false;  // the same tokens: masked inside
  auto operator<=>(const HalfPair&) const = default;
};

/// In their order: of a query half low keys first, of a key half low queries first.
std::vector<HalfPair> half_pairs(GrainPair pair);

}  // namespace lockstep::plan
