// 08: layers that ranks share.
//
//   lockstep run -n 2 -- build/bin/08_tensor         or, alone: build/bin/08_tensor
//
// A feed-forward block as Megatron-LM divides it: the first map by its output features, the second
// by its input features, so that the two meet in one sum. The block is computed in four tensor
// grains whoever holds them; the sums over grains follow one tree, so two ranks end with the bits
// of one. `sequence` would also divide the norm's tokens.

#include <iostream>
#include <vector>

#include <torch/torch.h>

#include "lockstep/lockstep.h"

constexpr int64_t kVocab = 30, kWidth = 24, kTokens = 8;

struct Block : torch::nn::Module {
  explicit Block(int64_t width) {
    norm = register_module("norm", std::make_shared<lockstep::SliceNorm>(width));
    in = register_module("in", std::make_shared<lockstep::ColumnLinear>(width, 4 * width));
    out = register_module("out", std::make_shared<lockstep::RowLinear>(4 * width, width));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    std::vector<torch::Tensor> hidden = in->forward(norm->forward(x));  // a tensor a grain
    for (torch::Tensor& grain : hidden) grain = torch::gelu(grain);
    return x + out->forward(hidden);
  }
  std::shared_ptr<lockstep::SliceNorm> norm;
  std::shared_ptr<lockstep::ColumnLinear> in;
  std::shared_ptr<lockstep::RowLinear> out;
};

/// Counting in steps that differ from sample to sample.
struct Counting {
  torch::optional<size_t> size() const { return 256; }
  torch::data::Example<> get(size_t i) const {
    const auto step = static_cast<int64_t>(i % 5 + 1);
    const torch::Tensor ids =
        (torch::arange(kTokens + 1) * step + static_cast<int64_t>(i)) % kVocab;
    return {ids.narrow(0, 0, kTokens).clone(), ids.narrow(0, 1, kTokens).clone()};
  }
};

int main(int argc, char** argv) {
  auto world = lockstep::init(argc, argv);
  const std::string mesh = "tp=" + std::to_string(world->size());
  lockstep::Training t(lockstep::Mesh::parse(mesh, world),
                       {.global_batch = 16, .micro_batch = 4, .tensor_grains = 4});
  auto net = t.build_layers([](lockstep::Layers& l) {
    l.add<lockstep::VocabEmbedding>("embed", kVocab, kWidth);
    for (int i = 0; i < 2; ++i) l.add<Block>("block", kWidth);
    l.add<lockstep::VocabHead>("head", kWidth, kVocab, lockstep::tied("embed"));
  });
  auto opt = t.adamw(net, {.lr = 1e-2});
  Counting data;
  for (auto& step : t.steps(data, 60)) {
    step.run(net, lockstep::token_loss);
    opt.step(step);
    if (world->rank() == 0 && step.number() % 20 == 19) {
      std::cout << "step " << step.number() + 1 << ": loss " << step.loss() << '\n';
    }
  }
  int64_t held = 0;
  for (const auto& parameter : net->parameters()) held += parameter.numel();
  const std::string digest = t.digest();
  const bool equal = world->gather_text(digest) ==
                     std::vector<std::string>(static_cast<size_t>(world->size()), digest);
  if (world->rank() == 0) {
    std::cout << "rank 0 holds " << held << " parameters; digest " << digest
              << (equal ? ", equal on all ranks\n" : ", which differs!\n");
  }
  return equal ? 0 : 1;
}
