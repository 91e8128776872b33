// A rank of a program of one's own that ends as it is told: init_rank HOW.

#include <cstring>
#include <iostream>
#include <stdexcept>
#include <string>

#include <torch/torch.h>

#include "lockstep/lockstep.h"

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  auto world = lockstep::init(argc, argv);
  torch::nn::Linear net(3, 2);
  lockstep::DistributedDataParallel ddp(net, world);
  const bool last = world.rank() == world.size() - 1;
  if (how == "twice") lockstep::init(argc, argv);
  if (last && how == "usage") throw lockstep::UsageError("[rank 2 of 3] the width must be even.");
  if (last && how == "other") throw std::runtime_error("no such sample");
  if (last && how == "code") return 7;
  ddp.backward(net->forward(torch::ones({1, 3})).sum());
  ddp.verify_replicas();
  if (world.rank() == 0) std::cout << "threads " << torch::get_num_threads() << "\n";
  return 0;
}
