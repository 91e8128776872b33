// 01: ranks that add up what each of them knows.
//
//   lockstep run -n 3 -- build/bin/01_all_reduce
//
// Every rank throws darts at a square and counts those inside the circle. An all-reduce gives each
// of them the sum of all counts, and so the same estimate of pi. Then the two halves of an
// all-reduce, one after the other: reduce-scatter leaves each rank a slice of the sum, all-gather
// brings the slices together.

#include <cmath>
#include <iostream>

#include <torch/torch.h>

#include "lockstep/lockstep.h"

int main(int argc, char** argv) {
  const lockstep::World world = lockstep::init(argc, argv);
  lockstep::ProcessGroup& group = *world;

  // Each rank its own darts, and the same ones on every run.
  torch::manual_seed(world.rank() + 1);
  const torch::Tensor darts = torch::rand({100'000, 2}, torch::kDouble);
  const torch::Tensor inside = darts.square().sum(1).le(1.0).sum();

  // Counts of all ranks, in place. The call returns at once; wait() returns with the sum.
  torch::Tensor counts = torch::stack({inside, torch::tensor(darts.size(0))});
  group.all_reduce(counts).wait();
  const double pi = 4 * counts[0].item<double>() / counts[1].item<double>();
  const double error = 1.64 / std::sqrt(counts[1].item<double>());
  std::cout << "rank " << world.rank() << " of " << world.size() << ": " << inside.item<int64_t>()
            << " of its darts are inside; pi is about " << pi << " +- " << error << "\n";

  // A tensor in the shared heap: peers read and write it where it is, nothing is copied.
  const int64_t slice = 4;
  torch::Tensor mine = group.allocate({slice * world.size()});
  mine.fill_(world.rank() + 1);
  torch::Tensor reduced = group.allocate({slice});
  group.reduce_scatter(mine, reduced).wait();  // elements [4 r, 4 r + 4) of the sum, on rank r
  torch::Tensor whole = group.allocate({slice * world.size()});
  group.all_gather(reduced, whole).wait();
  group.all_reduce(mine).wait();

  const bool equal = whole.equal(mine);
  group.barrier();
  if (world.rank() == 0) {
    std::cout << "reduce-scatter and all-gather " << (equal ? "give" : "DO NOT give")
              << " the all-reduce: " << whole[0].item<float>() << ", equal on all ranks\n";
  }
  return equal && std::abs(pi - M_PI) < 5 * error ? 0 : 1;
}
