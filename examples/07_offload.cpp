// 07: state that lives in a file while it is not at work.
//
//   lockstep run -n 2 -- build/bin/07_offload
//
// The same training twice: with everything in memory, and with this rank's shards of the parameters
// and both moments of its optimizer in an unnamed file. A unit's shard is read when it is about to
// be gathered; the optimizer's step is one pass over the file. The bits are the same, and memory
// holds a few blocks instead of the state.

#include <iostream>

#include <torch/torch.h>

#include "lockstep/lockstep.h"

namespace {

struct Net : torch::nn::Module {
  Net() {
    layers = register_module("layers", torch::nn::ModuleList());
    for (int i = 0; i < 8; ++i) layers->push_back(torch::nn::Linear(256, 256));
    out = register_module("out", torch::nn::Linear(256, 1));
  }
  torch::Tensor forward(torch::Tensor x) {
    for (const auto& layer : *layers) {
      x = x + torch::tanh(layer->as<torch::nn::Linear>()->forward(x));
    }
    return out(x);
  }
  torch::nn::ModuleList layers;
  torch::nn::Linear out{nullptr};
};

struct Waves : torch::data::datasets::Dataset<Waves> {
  torch::data::Example<> get(size_t index) override {
    const double pace = 0.01 + 0.002 * static_cast<double>(index);
    return {torch::sin(torch::arange(256) * pace), torch::tensor({static_cast<float>(pace)})};
  }
  c10::optional<size_t> size() const override { return 256; }
};

struct Run {
  std::string digest;
  double loss = 0;
  int64_t state_bytes = 0;  // parameters and optimizer, in this rank's memory
};

Run train(const lockstep::World& world, const lockstep::plan::Offload& offload) {
  auto& account = lockstep::memory::Account::open();
  const lockstep::memory::AccountScope counted(account);
  Run run;
  {
    lockstep::Training t(world, {.global_batch = 16,
                                 .micro_batch = 4,
                                 .shard = lockstep::Shard::zero3,
                                 .offload = offload});
    const auto net = t.build<Net>();
    auto opt = t.adamw(net, {.lr = 1e-3});
    if (offload.any() && world.rank() == 0) {
      lockstep::print("in a file: " + t.state().offload_text());
    }
    Waves waves;
    for (auto& step : t.steps(waves, 6)) {
      for (auto& mb : step) {
        step.backward((net->forward(mb.x) - mb.y).square().sum(), mb.tokens);
      }
      opt.step(step);
      run.loss = step.loss();
    }
    run.digest = t.digest();
    const lockstep::memory::KindBytes held = account.peak();
    run.state_bytes = held[static_cast<size_t>(lockstep::memory::Kind::parameters)] +
                      held[static_cast<size_t>(lockstep::memory::Kind::optimizer)];
  }
  account.close();
  return run;
}

}  // namespace

int main(int argc, char** argv) {
  const lockstep::World world = lockstep::init(argc, argv);
  const Run memory = train(world, {});
  const Run file = train(world, {.parameters = true, .optimizer = true});
  bool equal = memory.digest == file.digest && file.state_bytes < memory.state_bytes / 2;
  for (const std::string& other : world->gather_text(equal ? memory.digest : "unequal")) {
    equal &= other == memory.digest;
  }
  if (world.rank() == 0) {
    std::cout << "parameters and optimizer in memory: " << memory.state_bytes / 1024
              << " KiB a rank, with the file " << file.state_bytes / 1024 << " KiB\n"
              << "loss " << memory.loss << " and " << file.loss << "\n"
              << (equal ? "digests are equal on all ranks\n" : "digests differ\n");
  }
  return equal ? 0 : 1;
}
