/// Which tensor grains of its layers a rank holds.
///
/// Tensor-parallel layers are a loop over T grains: T is a part of the run's identity, who holds
/// which is layout. Runs of grains are contiguous and differ by at most one, longer ones first:
///
///   4 grains on 3 ranks:   rank 0: 0 1   rank 1: 2   rank 2: 3
#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/plan/sum_tree.h"

namespace lockstep::plan {

struct TensorPlace {
  int grains = 1;
  LeafRange local{0, 1};                      // this rank's
  std::vector<LeafRange> by_rank = {{0, 1}};  // of the tensor group
  bool sequence = false;  // between those layers a rank holds its slices of the sequence only
};

/// `ranks` at most `grains`.
inline TensorPlace place_of(int grains, int ranks, int rank, bool sequence) {
  TensorPlace place{.grains = grains, .local = {}, .by_rank = {}, .sequence = sequence};
  int first = 0;
  for (int r = 0; r < ranks; ++r) {
    const int size = grains / ranks + (r < grains % ranks ? 1 : 0);
    place.by_rank.push_back({first, first + size});
    first += size;
  }
  place.local = place.by_rank[static_cast<size_t>(rank)];
  return place;
}

}  // namespace lockstep::plan
