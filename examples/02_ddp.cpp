// 02: an ordinary training loop becomes a distributed one by two lines.
//
//   lockstep run -n 3 -- build/bin/02_ddp        or, alone: build/bin/02_ddp
//
// The lines are marked 1 and 2; `ddp.backward(loss)` stands where `loss.backward()` did, and
// `sharded` deals the batches of any loader to the ranks. The network learns to tell two spirals
// apart.

#include <cmath>
#include <iostream>
#include <vector>

#include <torch/torch.h>

#include "lockstep/lockstep.h"

struct Net : torch::nn::Module {
  Net() {
    hidden = register_module("hidden", torch::nn::Linear(2, 64));
    more = register_module("more", torch::nn::Linear(64, 64));
    out = register_module("out", torch::nn::Linear(64, 1));
  }
  torch::Tensor forward(torch::Tensor x) {
    return out(torch::tanh(more(torch::tanh(hidden(x))))).squeeze(1);
  }
  torch::nn::Linear hidden{nullptr}, more{nullptr}, out{nullptr};
};

struct Batch {
  torch::Tensor x, y;
};

/// `count` batches of 64 points on two spirals, the same on every rank.
std::vector<Batch> two_spirals(int count) {
  std::vector<Batch> batches;
  torch::manual_seed(7);
  for (int b = 0; b < count; ++b) {
    const torch::Tensor y = torch::randint(2, {64}).to(torch::kFloat);
    const torch::Tensor turn = torch::rand({64}).sqrt() * 3 * M_PI;
    const torch::Tensor angle = turn + y * M_PI;
    const torch::Tensor x = torch::stack({turn * angle.cos(), turn * angle.sin()}, 1) / 10;
    batches.push_back({x + 0.01 * torch::randn({64, 2}), y});
  }
  return batches;
}

int main(int argc, char** argv) {
  auto world = lockstep::init(argc, argv);  // 1
  std::vector<Batch> loader = two_spirals(48);
  auto net = std::make_shared<Net>();
  lockstep::DistributedDataParallel ddp(net, world);  // 2
  torch::optim::AdamW opt(net->parameters(), 5e-3);

  const auto loss_of = [](const torch::Tensor& logits, const torch::Tensor& y) {
    return torch::binary_cross_entropy_with_logits(logits, y);
  };
  for (int epoch = 0; epoch < 20; ++epoch) {
    torch::Tensor last;
    for (auto& b : lockstep::sharded(loader, world)) {
      ddp.zero_grad();
      last = loss_of(net->forward(b.x), b.y);
      ddp.backward(last);
      opt.step();
    }
    world->all_reduce(last = last.detach()).wait();  // of all ranks, for the eyes
    if (world.rank() == 0 && epoch % 5 == 4) {
      std::cout << "epoch " << epoch + 1 << ": loss " << last.item<double>() / world.size() << "\n";
    }
  }

  const Batch test = two_spirals(50).back();
  const torch::Tensor right = (net->forward(test.x) > 0).eq(test.y > 0.5).sum();
  ddp.verify_replicas();  // throws, naming the parameter, unless all ranks hold the same bits
  if (world.rank() == 0) {
    std::cout << right.item<int64_t>() << " of 64 new points told right; parameters are equal on "
              << "all ranks\n";
  }
  return right.item<int64_t>() >= 56 ? 0 : 1;
}
