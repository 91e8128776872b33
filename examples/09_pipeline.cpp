// 09: layers on stages.
//
//   lockstep run -n 3 -- build/bin/09_pipeline                     or, alone: build/bin/09_pipeline
//   lockstep run -n 3 -- build/bin/09_pipeline zero-bubble         another order of the same work
//
// A list of layers is cut into as many pieces as there are ranks. Micro-batches follow each other
// through the stages; what a stage does next is a schedule: `lockstep schedule` prints it.
// Whatever the schedule, gradients are added in one order: the digest is the same.

#include <iostream>
#include <string>

#include <torch/torch.h>

#include "lockstep/lockstep.h"

struct Block : torch::nn::Module {
  explicit Block(int64_t width) {
    map = register_module("map", torch::nn::Linear(width, width));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
  }
  torch::Tensor forward(torch::Tensor x) { return x + torch::tanh(map(norm(x))); }
  torch::nn::Linear map{nullptr};
  torch::nn::LayerNorm norm{nullptr};
};

/// Points of the plane, and on which of four spirals they lie.
struct Spirals {
  torch::optional<size_t> size() const { return 400; }
  torch::data::Example<> get(size_t i) const {
    const auto arm = static_cast<int64_t>(i % 4);
    const double r = 0.1 + 0.002 * static_cast<double>(i);
    const double angle = 6 * r + 1.57 * static_cast<double>(arm);
    return {torch::tensor({r * std::cos(angle), r * std::sin(angle)}, torch::kFloat),
            torch::full({1}, arm, torch::kLong)};
  }
};

int main(int argc, char** argv) {
  auto world = lockstep::init(argc, argv);
  const std::string schedule = argc > 1 ? argv[1] : "1f1b";
  const std::string mesh = "pp=" + std::to_string(world->size());
  lockstep::Training t(lockstep::Mesh::parse(mesh, world),
                       {.global_batch = 32, .micro_batch = 4, .schedule = schedule});
  auto net = t.build_layers([](lockstep::Layers& l) {
    l.add<torch::nn::LinearImpl>("in", 2, 32);
    for (int i = 0; i < 4; ++i) l.add<Block>("block", 32);
    l.add<torch::nn::LinearImpl>("out", 32, 4);
  });
  auto opt = t.adamw(net, {.lr = 1e-2});
  Spirals data;
  for (auto& step : t.steps(data, 60)) {
    step.run(net, lockstep::token_loss);
    opt.step(step);
    if (world->rank() == 0 && step.number() % 20 == 19) {
      std::cout << "step " << step.number() + 1 << ": loss " << step.loss() << '\n';
    }
  }
  const std::string digest = t.digest();
  const bool equal = world->gather_text(digest) ==
                     std::vector<std::string>(static_cast<size_t>(world->size()), digest);
  if (world->rank() == 0) {
    std::cout << "digest " << digest << (equal ? ", equal on all ranks\n" : ", which differs!\n");
  }
  return equal ? 0 : 1;
}
