// What bf16 products read is a rounded copy; what a step updates and sums is not.
#include <gtest/gtest.h>

#include "lockstep/fused/product.h"
#include "lockstep/kernels/gemm.h"
#include "lockstep/net/world.h"
#include "lockstep/train/training.h"

namespace lockstep {
namespace {

/// y = w x, by Lockstep's linear layer.
struct OneWeight : torch::nn::Module {
  OneWeight() {
    linear = register_module("linear", std::make_shared<ColumnLinear>(1, 1, /*bias=*/false));
  }
  at::Tensor forward(const at::Tensor& x) {
    return linear->forward(x.view({1, -1, 1, 1})).front().flatten();
  }
  std::shared_ptr<ColumnLinear> linear;
};

struct Numbers {
  std::vector<float> values;
  c10::optional<size_t> size() const { return values.size(); }
  torch::data::Example<> get(size_t i) const { return {at::full({1}, values[i]), at::zeros({1})}; }
};

at::Tensor plain_loss(const Layer&, const at::Tensor& out, const at::Tensor&) { return out; }

/// Trains the weight from 1 on `ranks` ranks; `after` sees each step.
void train(int ranks, TrainingOptions options, const std::vector<float>& numbers, double lr,
           int64_t steps, const std::function<void(float master)>& after) {
  options.shuffle = false;
  options.micro_batch = 1;
  options.global_batch = static_cast<int64_t>(numbers.size());
  options.init_of = [](const std::string&) { return plan::Init{.kind = plan::Init::Kind::ones}; };
  net::run_on_threads(ranks, [&](const std::shared_ptr<net::Group>& group) {
    const auto world = std::make_shared<ProcessGroup>(group);
    Training training(Mesh::parse("dp=" + std::to_string(ranks), world), options);
    const auto net = training.build_layers([](Layers& layers) { layers.add<OneWeight>("one"); });
    auto opt = training.optimizer(net, optim::SgdOptions{.momentum = 0, .weight_decay = 0},
                                  {.lr = lr, .grad_clip = 0});
    Numbers data{numbers};
    for (auto& step : training.steps(data, steps)) {
      step.run(net, plain_loss);
      opt.step(step);
      state::ParamStore& params = training.state().params();
      if (options.shard != Shard::zero3) {
        after(*params.master(0));
      } else if (const auto own = params.layout().pieces(world->rank()); !own.empty()) {
        after(*params.master(own.front()));
      }
    }
    world->barrier();
  });
}

constexpr plan::Arithmetic kBf16{.fused = true, .compute = plan::ComputeType::bf16};

// K = 2 micro-batches a leaf, with gradients 1, 3 on one rank and 5, 7 on the other, of a mean
// loss.
TEST(Training, ZERO_6_AllMicroBatchesComeBeforeTheReduction) {
  if (!kernels::has_bf16_products()) GTEST_SKIP() << "no bf16 products here";
  train(2, {.grains = 2, .shard = Shard::zero1, .arithmetic = kBf16}, {1, 3, 5, 7}, 1, 1,
        [](float master) { EXPECT_EQ(master, 1 - 4) << "on both ranks"; });
}

TEST(Training, ZERO_7_MastersKeepWhatBf16WouldLose) {
  if (!kernels::has_bf16_products()) GTEST_SKIP() << "no bf16 products here";
  for (const Shard shard : {Shard::none, Shard::zero1, Shard::zero2, Shard::zero3}) {
    float last = 0;
    train(2, {.grains = 2, .shard = shard, .arithmetic = kBf16}, {1, 1}, 0.001, 100,
          [&](float master) { last = master; });
    EXPECT_NEAR(last, 0.9, 100 * 0x1p-25) << "each of a hundred subtractions rounds once";
    const at::Tensor copy = fused::operand(kBf16, at::full({1}, last));
    EXPECT_EQ(copy.to(at::kFloat).item<float>(), 0.8984375F) << "what products read";
  }
  // Without masters nothing would move: a step of 0.001 is less than half of bf16's at 1.
  at::Tensor without = at::ones({1}, at::kBFloat16);
  for (int step = 0; step < 100; ++step) without.sub_(0.001);
  EXPECT_EQ(without.item<float>(), 1) << "which is why no run has that";
}

}  // namespace
}  // namespace lockstep
