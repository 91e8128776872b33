// 10: data, pipeline and tensor parallelism at once.
//
//   lockstep run -n 8 -- build/bin/10_three_axes                 or, alone: build/bin/10_three_axes
//   lockstep run -n 4 -- build/bin/10_three_axes "pp=2 tp=2"     any mesh of as many ranks
//
// The model is a list of layers, the layout is data: a text names the axes of the mesh, outermost
// first. Every mesh trains the same model with the same bits.

#include <iostream>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "lockstep/lockstep.h"

constexpr int64_t kVocab = 29, kWidth = 16, kTokens = 6;

struct Block : torch::nn::Module {
  explicit Block(int64_t width) {
    norm = register_module("norm", std::make_shared<lockstep::SliceNorm>(width));
    in = register_module("in", std::make_shared<lockstep::ColumnLinear>(width, 4 * width));
    out = register_module("out", std::make_shared<lockstep::RowLinear>(4 * width, width));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    std::vector<torch::Tensor> hidden = in->forward(norm->forward(x));
    for (torch::Tensor& grain : hidden) grain = torch::tanh(grain);
    return x + out->forward(hidden);
  }
  std::shared_ptr<lockstep::SliceNorm> norm;
  std::shared_ptr<lockstep::ColumnLinear> in;
  std::shared_ptr<lockstep::RowLinear> out;
};

struct Squares {
  torch::optional<size_t> size() const { return 200; }
  torch::data::Example<> get(size_t i) const {
    const torch::Tensor n = torch::arange(kTokens + 1) + static_cast<int64_t>(i);
    const torch::Tensor ids = (n * n) % kVocab;
    return {ids.narrow(0, 0, kTokens).clone(), ids.narrow(0, 1, kTokens).clone()};
  }
};

/// As many axes as the ranks can be divided by two, from the inside.
std::string mesh_for(int ranks) {
  const int tp = ranks % 2 == 0 ? 2 : 1;
  const int pp = ranks / tp % 2 == 0 ? 2 : 1;
  return "dp=" + std::to_string(ranks / tp / pp) + " pp=" + std::to_string(pp) +
         " tp=" + std::to_string(tp);
}

int main(int argc, char** argv) {
  auto world = lockstep::init(argc, argv);
  const std::string mesh = argc > 1 ? argv[1] : mesh_for(world->size());
  lockstep::Training t(lockstep::Mesh::parse(mesh, world),
                       {.global_batch = 16, .micro_batch = 2, .tensor_grains = 2});
  auto net = t.build_layers([](lockstep::Layers& l) {
    l.add<lockstep::VocabEmbedding>("embed", kVocab, kWidth);
    for (int i = 0; i < 4; ++i) l.add<Block>("block", kWidth);
    l.add<lockstep::VocabHead>("head", kWidth, kVocab, lockstep::tied("embed"));
  });
  auto opt = t.adamw(net, {.lr = 1e-2});
  Squares data;
  double loss = 0;
  for (auto& step : t.steps(data, 40)) {
    step.run(net, lockstep::token_loss);
    opt.step(step);
    loss = step.loss();
  }
  const std::string digest = t.digest();
  const bool equal = world->gather_text(digest) ==
                     std::vector<std::string>(static_cast<size_t>(world->size()), digest);
  if (world->rank() == 0) {
    std::cout << mesh << ": loss " << loss << " after 40 steps, digest " << digest
              << (equal ? ", equal on all ranks\n" : ", which differs!\n");
  }
  return equal ? 0 : 1;
}
