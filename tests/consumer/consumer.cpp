// What a user's program may look like: it includes one header and links one library.
#include <iostream>

#include <torch/torch.h>

#include "lockstep/lockstep.h"

int main(int argc, char** argv) {
  auto world = lockstep::init(argc, argv);
  torch::nn::LSTM net(torch::nn::LSTMOptions(3, 4));
  lockstep::DistributedDataParallel ddp(net, world);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  const auto [output, state] = net->forward(torch::ones({5, 2, 3}) * (world.rank() + 1));
  ddp.backward(output.square().mean());
  sgd.step();
  ddp.verify_replicas();
  const int ranks = world.size();
  world->barrier();
  if (world.rank() == 0) std::cout << "consumer: " << ranks << " ranks agree\n";
  return 0;
}
