// Plans are values: this program prints one, and starts no rank.
#include <iostream>

#include "lockstep/plan/batch_plan.h"

int main() {
  const auto leaves = lockstep::plan::plan_leaves(8, 3, lockstep::plan::LeafAssignment::contiguous);
  for (int rank = 0; rank < 3; ++rank) {
    const auto run = leaves.run_of(rank);
    std::cout << "rank " << rank << ": leaves " << run.lo << " to " << run.hi - 1 << "\n";
  }
}
