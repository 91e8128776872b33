// 06: activations computed again in backward instead of kept.
//
//   lockstep run -n 2 -- build/bin/06_recompute
//
// A network of twelve blocks is taken forward and backward twice from the same start: plainly, and
// with `lockstep::checkpoint` around each block. The second keeps the inputs of the blocks alone
// and runs each block again in backward, with the same dropout. Its peak is a fraction, its
// gradients are equal bit for bit; it computes each block's forward twice.

#include <iostream>
#include <vector>

#include <torch/torch.h>

#include "lockstep/lockstep.h"
#include "lockstep/memory/counting_allocator.h"

namespace {

constexpr int kBlocks = 12;
constexpr int64_t kWidth = 64;
constexpr int64_t kRows = 512;

/// x + W2 dropout(gelu(W1 norm(x))): keeps about ten times its input for backward.
struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    norm = register_module("norm", torch::nn::LayerNorm(std::vector<int64_t>{kWidth}));
    up = register_module("up", torch::nn::Linear(kWidth, 4 * kWidth));
    down = register_module("down", torch::nn::Linear(4 * kWidth, kWidth));
    dropout = register_module("dropout", torch::nn::Dropout(0.1));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    return x + down(dropout(torch::gelu(up(norm(x)))));
  }

  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear up{nullptr}, down{nullptr};
  torch::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(Block);

struct Outcome {
  std::vector<torch::Tensor> gradients;
  int64_t peak_bytes;  // of tensors, above what was there before
};

Outcome forward_and_backward(std::vector<Block>& blocks, const torch::Tensor& x, bool recompute) {
  for (Block& block : blocks) block->zero_grad(/*set_to_none=*/false);
  torch::manual_seed(7);  // the same dropout in both
  const int64_t before = lockstep::memory::tensor_memory().current_bytes;
  lockstep::memory::reset_peak();
  torch::Tensor y = x;
  for (Block& block : blocks) {
    auto forward = [block](const torch::Tensor& in) mutable { return block(in); };
    y = recompute ? lockstep::checkpoint(forward, y) : forward(y);
  }
  y.square().mean().backward();
  Outcome outcome{.gradients = {},
                  .peak_bytes = lockstep::memory::tensor_memory().peak_bytes - before};
  for (const Block& block : blocks) {
    for (const torch::Tensor& parameter : block->parameters()) {
      outcome.gradients.push_back(parameter.grad().clone());
    }
  }
  return outcome;
}

}  // namespace

int main(int argc, char** argv) {
  lockstep::memory::install_counting_allocator();  // counts what tensors hold
  const lockstep::World world = lockstep::init(argc, argv);
  torch::manual_seed(1);
  std::vector<Block> blocks;
  for (int i = 0; i < kBlocks; ++i) blocks.emplace_back();
  const torch::Tensor x = torch::randn({kRows, kWidth});
  forward_and_backward(blocks, x, false);  // makes the gradients' tensors

  const Outcome plain = forward_and_backward(blocks, x, false);
  const Outcome again = forward_and_backward(blocks, x, true);
  bool equal = true;
  for (size_t i = 0; i < plain.gradients.size(); ++i) {
    equal = equal && torch::equal(plain.gradients[i], again.gradients[i]);
  }
  torch::Tensor on_all = torch::full({1}, equal ? 1 : 0, torch::kInt);
  world->all_reduce(on_all, lockstep::ReduceOp::min).wait();
  if (world->rank() == 0) {
    std::cout << "all kept    " << plain.peak_bytes / 1024 << " KiB at the peak\n"
              << "recomputed  " << again.peak_bytes / 1024 << " KiB at the peak\n"
              << (on_all.item<int>() == 1 ? "gradients are equal on all ranks, bit for bit\n"
                                          : "gradients differ\n");
  }
  return equal && again.peak_bytes * 3 < plain.peak_bytes ? 0 : 1;
}
