// 05: a model that is whole on no rank.
//
//   lockstep run -n 3 -- build/bin/05_fully_shard        or, alone: build/bin/05_fully_shard
//   lockstep run -n 3 -- build/bin/05_fully_shard 0      with nothing gathered ahead of its use
//
// `fully_shard` leaves the module as it is. Every rank keeps its share of the parameters, of their
// gradients and of the optimizer's state; a layer is gathered when an operator first touches it,
// the next ones ahead of that, and freed afterwards. Beside it, the same network is trained by
// DistributedDataParallel, which holds all of it on every rank: the losses have the same bits.

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "lockstep/lockstep.h"

/// Predicts the next value of a noisy wave from the 32 before it.
struct Forecast : torch::nn::Module {
  Forecast() {
    torch::manual_seed(1);
    in = register_module("in", torch::nn::Linear(32, 96));
    for (int i = 0; i < 6; ++i) {
      blocks->push_back(torch::nn::Sequential(
          torch::nn::LayerNorm(torch::nn::LayerNormOptions({96})), torch::nn::Linear(96, 192),
          torch::nn::GELU(), torch::nn::Linear(192, 96)));
    }
    register_module("blocks", blocks);
    out = register_module("out", torch::nn::Linear(96, 1));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = in(x);
    for (const auto& block : *blocks) {
      x = x + block->as<torch::nn::Sequential>()->forward(x);
    }
    return out(x).squeeze(1);
  }
  torch::nn::Linear in{nullptr}, out{nullptr};
  torch::nn::ModuleList blocks;
};

/// 32 windows of a sum of two waves, this rank's and this step's own.
std::pair<torch::Tensor, torch::Tensor> windows(int step, int rank) {
  const torch::Tensor start = torch::arange(32) * 17.0 + 541 * step + 10007 * rank;
  const torch::Tensor t = start.unsqueeze(1) + torch::arange(33);
  const torch::Tensor wave = (t * 0.2).sin() + 0.5 * (t * 0.67).cos() + 0.05 * (t * t).sin();
  return {wave.narrow(1, 0, 32).to(torch::kFloat).contiguous(),
          wave.select(1, 32).to(torch::kFloat).contiguous()};
}

int64_t bytes_of(const std::vector<torch::Tensor>& tensors) {
  int64_t bytes = 0;
  for (const torch::Tensor& tensor : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

int main(int argc, char** argv) {
  auto world = lockstep::init(argc, argv);
  const int prefetch = argc > 1 ? std::atoi(argv[1]) : 1;

  auto whole = std::make_shared<Forecast>();
  lockstep::DistributedDataParallel ddp(whole, world);
  torch::optim::AdamW whole_adamw(whole->parameters(), 2e-3);

  auto net = std::make_shared<Forecast>();
  auto h = lockstep::fully_shard(net, world, {.prefetch = prefetch});  // 1: the module is divided
  torch::optim::AdamW adamw(h.parameters(), 2e-3);  // 2: the optimizer has this rank's shards

  const auto loss_of = [&](Forecast& forecast, int step) {
    const auto [x, y] = windows(step, world.rank());
    return torch::mse_loss(forecast.forward(x), y);
  };
  bool equal = true;
  double first = 0;
  double last = 0;
  for (int step = 0; step < 60; ++step) {
    ddp.zero_grad();
    const torch::Tensor reference = loss_of(*whole, step);
    ddp.backward(reference);
    whole_adamw.step();

    h.zero_grad();
    const torch::Tensor loss = loss_of(*net, step);
    h.backward(loss);  // 3: in place of loss.backward()
    adamw.step();

    equal = equal && loss.item<float>() == reference.item<float>();
    last = loss.item<float>();
    if (step == 0) first = last;
  }

  const lockstep::FullyShardCounts counts = h.counts();
  const std::vector<std::string> held = world->gather_text(
      "rank " + std::to_string(world.rank()) + ": " + std::to_string(counts.shard_bytes) + " of " +
      std::to_string(bytes_of(whole->parameters())) + " bytes of parameters, at most " +
      std::to_string(counts.most_gathered) + " blocks gathered beside the root, " +
      std::to_string(counts.gathers / 60) + " gathers a step");
  const torch::Tensor weight = h.whole("blocks.5.3.weight");  // gathered for saving, on all ranks
  equal = equal && torch::equal(weight, whole->named_parameters()["blocks.5.3.weight"]);
  if (world.rank() == 0) {
    for (const std::string& line : held) std::cout << line << "\n";
    std::cout << "loss " << first << " -> " << last << "\n"
              << "losses and parameters of shards and replicas are "
              << (equal ? "equal on all ranks" : "NOT equal") << "\n";
  }
  return equal && last < first ? 0 : 1;
}
