#include "lockstep/train/step_runner.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/base/counter_random.h"
#include "lockstep/net/world.h"

namespace lockstep {
namespace {

constexpr int64_t kTokens = 6;  // of a micro-batch

/// Token losses (x w + b)^2 with x of shape [kTokens, 5].
struct Net : torch::nn::Module {
  Net() {
    w = register_parameter("w", torch::empty({5, 300}));
    b = register_parameter("b", torch::empty({300}));
  }
  torch::Tensor forward(const torch::Tensor& x) { return (torch::mm(x, w) + b).square().sum(1); }
  torch::Tensor w, b;
};

torch::Tensor input_of(int leaf, int micro) {
  torch::Tensor x = torch::empty({kTokens, 5});
  const base::RandomKey key = base::RandomKey(3).with(static_cast<uint64_t>(leaf * 10 + micro));
  for (int64_t i = 0; i < x.numel(); ++i) {
    x.data_ptr<float>()[i] = static_cast<float>(key.normal(static_cast<uint64_t>(i)));
  }
  return x;
}

plan::Init init_of(const std::string&) { return {.kind = plan::Init::Kind::normal, .std = 0.3}; }

/// The rig of one rank: 3 leaves of 2 micro-batches.
struct Rig {
  explicit Rig(const std::shared_ptr<net::Group>& world) : group(world) {
    inputs.batch = plan::plan_batch(6 * kTokens, kTokens, 3);
    inputs.leaves = plan::plan_leaves(3, group.size(), plan::LeafAssignment::contiguous);
    inputs.table = params.table();
    inputs.buckets = params.buckets();
  }

  StepResult step(double seed) {
    StepRunner runner(inputs, params, grads(), {.dp = group});
    StepCompute compute;
    compute.forward = [&](const plan::Step& step, const at::Tensor&) {
      return net.forward(input_of(step.leaf, step.micro));
    };
    compute.update = [&](double norm) { norms_given.push_back(norm); };
    compute.entering = [&](const plan::Step& op) { entered.push_back(op); };
    const StepResult result = runner.run(compute, seed);
    group.barrier();
    return result;
  }

  state::GradStore& grads() {
    if (!grads_) {
      grads_ = std::make_unique<state::GradStore>(params, group, inputs.leaves,
                                                  inputs.batch.micro_batches_per_grain);
    }
    return *grads_;
  }

  ProcessGroup group;
  Net net;
  state::ParamStore params{net, {}, init_of, {.seed = 9}};
  plan::StepInputs inputs;
  std::vector<double> norms_given;
  std::vector<plan::Step> entered;
  std::unique_ptr<state::GradStore> grads_;
};

class StepRunnerOnRanks : public ::testing::TestWithParam<int> {};

/// Against plain autograd over the whole batch: loss and norm within the rounding of float32 sums.
TEST_P(StepRunnerOnRanks, LossAndNormAreThoseOfTheWholeBatch) {
  net::run_on_threads(GetParam(), [](const std::shared_ptr<net::Group>& world) {
    Rig rig(world);
    constexpr double kSeed = 0.25;
    const StepResult result = rig.step(kSeed);

    Net plain;
    state::ParamStore same(plain, {}, init_of, {.seed = 9});
    double loss = 0;
    for (int leaf = 0; leaf < 3; ++leaf) {
      for (int micro = 0; micro < 2; ++micro) {
        const torch::Tensor losses = plain.forward(input_of(leaf, micro));
        loss += losses.sum().item<double>();
        (losses.sum() * kSeed).backward();
      }
    }
    double squares = 0;
    for (const torch::Tensor& p : plain.parameters()) {
      squares += p.grad().to(torch::kDouble).square().sum().item<double>();
    }
    // Six micro-batches of six tokens: fewer than 64 additions a sum, each within 2^-24.
    const double bound = 64 * std::ldexp(1.0, -24);
    EXPECT_NEAR(result.loss_sum / loss, 1.0, bound);
    EXPECT_NEAR(result.grad_norm / std::sqrt(squares), 1.0, bound);
    ASSERT_EQ(rig.norms_given.size(), 1u);
    EXPECT_EQ(rig.norms_given[0], result.grad_norm);
  });
}

TEST_P(StepRunnerOnRanks, EveryStepStartsAfresh) {
  net::run_on_threads(GetParam(), [](const std::shared_ptr<net::Group>& world) {
    Rig rig(world);
    const StepResult first = rig.step(1.0);
    const StepResult second = rig.step(1.0);
    EXPECT_EQ(first.loss_sum, second.loss_sum);
    EXPECT_EQ(first.grad_norm, second.grad_norm);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, StepRunnerOnRanks, ::testing::Values(1, 2, 3));

TEST(StepRunner, AnErrorOfTheComputeComesOut) {
  net::run_on_threads(1, [](const std::shared_ptr<net::Group>& world) {
    Rig rig(world);
    StepRunner runner(rig.inputs, rig.params, rig.grads(), {.dp = rig.group});
    StepCompute compute;
    compute.forward = [](const plan::Step&, const at::Tensor&) -> at::Tensor {
      throw std::runtime_error("no such window");
    };
    compute.update = [](double) {};
    EXPECT_THROW(runner.run(compute, 1.0), std::runtime_error);
  });
}

}  // namespace
}  // namespace lockstep
