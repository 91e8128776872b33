#include "lockstep/train/noise_scale.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "lockstep/base/counter_random.h"
#include "tests/train/layouts.h"
#include "tests/train/poison.h"
#include "tests/train/run_bits.h"

namespace lockstep {
namespace {

using testing::bits_of;
using testing::expect_planned_bytes;
using testing::Layout;
using testing::TinyRun;

/// Gradients of a sample are g + sigma z, z standard normal in `kDim` dimensions: the noise scale
/// is sigma^2 kDim / |g|^2.
constexpr int64_t kDim = 128;
constexpr double kSigma = 0.5;
constexpr double kGradient = 0.25;  // of each dimension
constexpr double kScale = kSigma * kSigma / (kGradient * kGradient);

TEST(NoiseEstimate, FindsTheScaleOfKnownNoise) {
  const base::RandomKey key(7);
  NoiseEstimate estimate;
  EXPECT_TRUE(std::isnan(estimate.samples()));
  constexpr int kLeaves = 4;
  uint64_t draw = 0;
  for (int step = 0; step < 400; ++step) {
    const int64_t each = step < 200 ? 2 : 3;  // samples of a leaf: the batch may grow
    std::vector<double> whole(kDim);
    double leaf_square = 0;
    for (int leaf = 0; leaf < kLeaves; ++leaf) {
      for (double& sum : whole) {
        double mean = 0;
        for (int64_t s = 0; s < each; ++s) mean += kGradient + kSigma * key.normal(draw++);
        mean /= static_cast<double>(each);
        leaf_square += mean * mean / kLeaves;
        sum += mean / kLeaves;
      }
    }
    double square = 0;
    for (const double value : whole) square += value * value;
    estimate.add(leaf_square, square, each * kLeaves, kLeaves);
  }
  // An estimate of a step has a relative spread of about sqrt(2/128) sqrt(4/3) in the noise, and
  // less in the gradient; 1/(1 - decay) = 20 steps of it are averaged: 3 per cent. Four of these.
  EXPECT_NEAR(estimate.samples() / kScale, 1, 0.12);
}

TEST(NoiseEstimate, WithoutNoiseIsZero) {
  NoiseEstimate estimate;
  estimate.add(4, 4, 16, 4);
  EXPECT_EQ(estimate.samples(), 0);
}

/// The same gradients through a run: loss = w . (g + sigma z) has them at any w.
struct NoisyTask final : Task {
  struct Module : torch::nn::Module {
    at::Tensor weight = register_parameter("weight", torch::zeros({kDim}));
  };
  torch::nn::Module& module() override { return *module_; }
  int64_t samples() const override { return 100'000; }
  at::Tensor losses(const Samples& samples, const RankContext&) override {
    const base::RandomKey key(11);
    at::Tensor gradients = torch::empty({samples.count, kDim});
    float* at = gradients.data_ptr<float>();
    for (int64_t i = 0; i < gradients.numel(); ++i) {
      const auto place = static_cast<uint64_t>(samples.first * kDim + i);
      at[i] = static_cast<float>(kGradient + kSigma * key.normal(place));
    }
    return torch::mv(gradients, module_->weight);
  }
  std::shared_ptr<Module> module_ = std::make_shared<Module>();
};

TEST(NoiseScale, FindsTheNoiseOfARun) {
  TinyRun run;
  run.config.model.family = "noisy";
  run.config.run.worker = "own";
  run.config.run.steps = 200;
  run.config.log.noise_scale = true;
  nlohmann::json summary;
  const testing::TempFolder out;
  net::run_on_threads(2, [&](const std::shared_ptr<net::Group>& world) {
    Trainer trainer(
        {.config = run.config,
         .run_folder = out.path(),
         .console_fd = -1,
         .tasks = {{"noisy",
                    [](const plan::TrainConfig&) { return std::make_shared<NoisyTask>(); }}}},
        world->endpoint());
    const TrainResult result = trainer.run();
    if (world->rank() == 0) summary = nlohmann::json::parse(result.summary);
  });
  EXPECT_NEAR(summary["noise_scale"]["samples"].get<double>() / kScale, 1, 0.12);
}

struct NoiseRun : testing::LayoutRun {
  NoiseRun() {
    config.model.width = 20;
    config.model.context = 12;
    config.data.micro_batch = 1;
    config.log.noise_scale = true;
  }
};

void expect_same(NoiseRun& run, const std::vector<Layout>& layouts) {
  const nlohmann::json alone = run.run_with({});
  ASSERT_TRUE(alone["noise_scale"]["samples"].is_number());
  EXPECT_EQ(alone["noise_scale"]["tokens"], alone["noise_scale"]["samples"].get<double>() * 12);
  run.config.log.noise_scale = false;
  EXPECT_EQ(bits_of(run.run_with({})), bits_of(alone));
  run.config.log.noise_scale = true;
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(::testing::PrintToString(layout));
    const nlohmann::json shared = run.run_with(layout);
    EXPECT_EQ(bits_of(shared), bits_of(alone));
    EXPECT_EQ(shared["noise_scale"], alone["noise_scale"]);
    expect_planned_bytes(shared);
  }
}

TEST(NoiseScale, HasTheBitsOfOneRank) {
  NoiseRun run;
  expect_same(run, testing::layouts());
}

TEST(NoiseScale, HasTheBitsOfOneRankInTensorGrains) {
  NoiseRun run;
  run.config.numerics.tensor_grains = 2;
  expect_same(run, testing::tensor_layouts());
}

TEST(NoiseScale, AStepThatIsLeftOutDoesNotCount) {
  NoiseRun run;
  run.config.run.on_nan = "skip";
  run.run_on(2, [&](Trainer& trainer, int rank) {
    testing::poison(trainer, 3, "h.0.attn");
    const TrainResult result = trainer.run();
    if (rank != 0) return;
    const nlohmann::json summary = nlohmann::json::parse(result.summary);
    EXPECT_EQ(summary["skipped_steps"], 1);
    EXPECT_TRUE(summary["noise_scale"]["samples"].is_number());
  });
}

}  // namespace
}  // namespace lockstep
