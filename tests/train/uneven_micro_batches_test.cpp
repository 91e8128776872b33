// Micro-batches that differ in size, through two stages. In training a global batch divides by the
// micro-batch; here the samples come from the test.

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <torch/nn/module.h>

#include <gtest/gtest.h>

#include <numeric>

#include "lockstep/net/world.h"
#include "tests/train/stage_rig.h"
#include "tests/train/tiny_run.h"

namespace lockstep {
namespace {

constexpr int kStages = 2;

/// y = w x, with w = 1, as the layer of one stage.
struct Scale : torch::nn::Module {
  explicit Scale(int stage) {
    weight = register_parameter("weight" + std::to_string(stage), at::empty({1}));
  }
  at::Tensor weight;
};

struct Outcome {
  float gradient = 0;  // of the stage's weight
  double loss_sum = 0;
  double grad_norm = 0;
  std::vector<int64_t> sizes;  // of the micro-batches that the stage saw
};

/// A step over the samples 1, 2, 3... cut into micro-batches of `sizes`; the loss of each is y.
std::vector<Outcome> step_over(const std::vector<int64_t>& sizes, const std::string& schedule,
                               int grains) {
  std::vector<Outcome> outcomes(kStages);
  const int64_t samples = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  const auto micros = static_cast<int>(sizes.size());
  net::run_on_threads(kStages, [&](const std::shared_ptr<net::Group>& group) {
    const int stage = group->rank();
    Scale scale(stage);
    testing::StageRig rig(group, scale,
                          {.global_batch = samples,
                           .micro_batch = sizes.front(),
                           .grains = grains,
                           .micro_batches_per_grain = micros / grains},
                          {.schedule = schedule}, [](const std::string&) { return 0; });
    Outcome& mine = outcomes[static_cast<size_t>(stage)];
    StepCompute compute;
    compute.forward = [&](const plan::Step& step, const at::Tensor& input) {
      const auto micro = static_cast<size_t>(step.leaf * (micros / grains) + step.micro);
      const int64_t first = std::accumulate(
          sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(micro), int64_t{1});
      const at::Tensor x =
          input.defined() ? input : at::arange(first, first + sizes[micro], at::kFloat);
      mine.sizes.push_back(x.size(0));
      return x * scale.weight;
    };
    compute.update = [](double) {};
    const StepResult result = rig.state().runner().run(compute, 1.0 / static_cast<double>(samples));
    mine.gradient = *rig.state().grads().gradient(0);
    mine.loss_sum = result.loss_sum;
    mine.grad_norm = result.grad_norm;
    rig.context.world->barrier();
  });
  return outcomes;
}

/// By each sample's own gradient, x: 3 is their mean, 3.25 the mean of the two means.
TEST(UnevenMicroBatches, PP_3_EachSampleWeighsAlike) {
  for (const char* schedule : {"gpipe", "1f1b", "zero-bubble"}) {
    for (const int grains : {1, 2}) {
      for (const Outcome& stage : step_over({3, 2}, schedule, grains)) {
        EXPECT_FLOAT_EQ(stage.gradient, 3) << schedule << ", " << grains << " leaves";
        EXPECT_EQ(stage.loss_sum, 15);
        EXPECT_NEAR(stage.grad_norm, 3 * std::sqrt(2), 1e-6);
        EXPECT_EQ(stage.sizes, (std::vector<int64_t>{3, 2}));
      }
    }
    for (const int grains : {1, 3}) {
      for (const Outcome& stage : step_over({3, 3, 2}, schedule, grains)) {
        EXPECT_FLOAT_EQ(stage.gradient, 4.5f) << schedule << ", " << grains << " leaves";
        EXPECT_EQ(stage.loss_sum, 36);
        EXPECT_EQ(stage.sizes, (std::vector<int64_t>{3, 3, 2}));
      }
    }
  }
}

/// Larger ones after smaller ones, too: nothing is kept in a buffer of the first one's shape.
TEST(UnevenMicroBatches, AnyOrderOfSizes) {
  for (const Outcome& stage : step_over({1, 4, 2, 1}, "1f1b", 2)) {
    EXPECT_FLOAT_EQ(stage.gradient, 4.5f);
    EXPECT_EQ(stage.sizes, (std::vector<int64_t>{1, 4, 2, 1}));
  }
}

/// 300 tokens are 27 windows of 11: thirteen micro-batches of two, and one of one.
TEST(UnevenMicroBatches, AShortLastLeafOfAnEvaluation) {
  testing::TinyRun run;
  run.config.run.steps = 1;
  run.config.model.layers = 4;
  run.config.data.eval_batches = 3;  // 24 windows
  const double of_full_leaves = run.run(1)["val_loss"];
  run.config.data.eval_batches = 4;  // all that are there
  const double alone = run.run(1)["val_loss"];
  EXPECT_NE(alone, of_full_leaves);
  run.config.parallel.pipeline = 2;
  for (const char* schedule : {"1f1b", "zero-bubble-v"}) {
    run.config.parallel.schedule = schedule;
    EXPECT_EQ(run.run(2)["val_loss"], alone) << schedule;
  }
}

}  // namespace
}  // namespace lockstep
