// 04: the same training, what it holds divided among the ranks.
//
//   lockstep run -n 4 -- build/bin/04_zero
//
// Five steps of a small network, four times: nothing divided, then ZeRO's three stages. Each rank
// holds less from stage to stage, more bytes move with the third, and the parameters end with the
// same bits: who holds what is layout, and what is computed is not.

#include <iomanip>
#include <iostream>

#include <torch/torch.h>

#include "lockstep/lockstep.h"

namespace {

struct Net : torch::nn::Module {
  Net() {
    in = register_module("in", torch::nn::Linear(16, 96));
    layers = register_module("layers", torch::nn::ModuleList());
    for (int i = 0; i < 6; ++i) layers->push_back(torch::nn::Linear(96, 96));
    out = register_module("out", torch::nn::Linear(96, 4));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(in(x));
    for (const auto& layer : *layers) {
      x = x + torch::relu(layer->as<torch::nn::Linear>()->forward(x));
    }
    return out(x);
  }
  torch::nn::Linear in{nullptr}, out{nullptr};
  torch::nn::ModuleList layers;
};

/// Points and what is to be found from them, the same on every rank.
struct Points : torch::data::datasets::Dataset<Points> {
  torch::data::Example<> get(size_t index) override {
    const auto x = torch::sin(torch::arange(16) * (0.1 + 0.01 * static_cast<double>(index)));
    return {x, torch::stack({x.sum(), x.max(), x.min(), x.square().sum()})};
  }
  c10::optional<size_t> size() const override { return 512; }
};

struct Run {
  std::string digest;
  double loss = 0;
  lockstep::plan::StateBytes held;  // by this rank
  int64_t moved = 0;                // by this rank, in a step
};

Run train(const lockstep::World& world, lockstep::Shard shard) {
  lockstep::Training t(world, {.global_batch = 32, .micro_batch = 4, .shard = shard});
  const auto net = t.build<Net>();
  auto opt = t.adamw(net, {.lr = 1e-3});
  Points points;
  Run run;
  for (auto& step : t.steps(points, 5)) {
    for (auto& mb : step) {
      step.backward((net->forward(mb.x) - mb.y).square().sum(), /*weight=*/mb.tokens);
    }
    opt.step(step);
    run.loss = step.loss();
  }
  run.digest = t.digest();
  run.held = lockstep::plan::planned_state(t.state().inputs(), world.rank());
  run.moved = lockstep::plan::planned_bytes(t.state().inputs(), world.rank()).total();
  return run;
}

}  // namespace

int main(int argc, char** argv) {
  const lockstep::World world = lockstep::init(argc, argv);
  const std::pair<const char*, lockstep::Shard> stages[] = {{"none", lockstep::Shard::none},
                                                            {"zero1", lockstep::Shard::zero1},
                                                            {"zero2", lockstep::Shard::zero2},
                                                            {"zero3", lockstep::Shard::zero3}};
  std::string digest;
  bool equal = true;
  if (world.rank() == 0) {
    std::cout << "KiB a rank  parameters  gradients  optimizer  gathered  moved a step  loss\n";
  }
  for (const auto& [name, shard] : stages) {
    const Run run = train(world, shard);
    if (digest.empty()) digest = run.digest;
    equal &= run.digest == digest;
    if (world.rank() != 0) continue;
    const auto kib = [](int64_t bytes) { return bytes / 1024; };
    std::cout << std::setw(10) << name << std::setw(12) << kib(run.held.parameters) << std::setw(11)
              << kib(run.held.gradients + run.held.leaf) << std::setw(11) << kib(run.held.optimizer)
              << std::setw(10) << kib(run.held.gathered) << std::setw(14) << kib(run.moved) << "  "
              << run.loss << "\n";
  }
  for (const std::string& other : world->gather_text(equal ? digest : "unequal")) {
    equal &= other == digest;
  }
  if (world.rank() == 0) {
    lockstep::print("param_digest " + digest);
    lockstep::print(equal ? "four layouts, one digest: equal on all ranks" : "digests differ");
  }
  return equal ? 0 : 1;
}
