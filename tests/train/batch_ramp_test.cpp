// A batch that grows: the same bits on any layout, each sample once.

#include <gtest/gtest.h>

#include "tests/train/layouts.h"
#include "tests/train/run_bits.h"

namespace lockstep {
namespace {

using testing::bits_of;
using testing::expect_planned_bytes;
using testing::Layout;

/// 4 leaves of 1, 2, 3 and 4 micro-batches of one sample.
struct RampRun : testing::LayoutRun {
  RampRun() {
    config.run.steps = 8;
    config.model.width = 20;
    config.model.context = 12;
    config.data.global_batch = 16;
    config.data.micro_batch = 1;
    config.data.ramp_from = 4;
    config.data.ramp_steps = 6;
    config.numerics.grains = 4;
    config.optim.decay = "constant";
  }
};

void expect_same(RampRun& run, const std::vector<Layout>& layouts) {
  const nlohmann::json alone = run.run_with({});
  // Steps 0-1: 4 samples, 2-3: 8, 4-5: 12, 6-7: 16.
  EXPECT_EQ(alone["ranks"][0]["samples"], 80);
  EXPECT_EQ(alone["tokens"], 80 * 12);
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(::testing::PrintToString(layout));
    const nlohmann::json shared = run.run_with(layout);
    EXPECT_EQ(bits_of(shared), bits_of(alone));
    EXPECT_EQ(shared["tokens"], 80 * 12);
    expect_planned_bytes(shared);
  }
}

TEST(BatchRampRun, HasTheBitsOfOneRank) {
  RampRun run;
  expect_same(run, testing::layouts());
}

TEST(BatchRampRun, HasTheBitsOfOneRankInTensorGrains) {
  RampRun run;
  run.config.numerics.tensor_grains = 2;
  expect_same(run, testing::tensor_layouts());
}

TEST(BatchRampRun, HasTheBitsOfOneRankWhateverTheSchedule) {
  RampRun run;
  const nlohmann::json alone = run.run_with({});
  for (const char* schedule : {"gpipe", "zero-bubble"}) {
    run.config.parallel.schedule = schedule;
    const nlohmann::json shared = run.run_with({.pipeline = 2});
    EXPECT_EQ(bits_of(shared), bits_of(alone)) << schedule;
    expect_planned_bytes(shared);
  }
  run.config.parallel.schedule = "interleaved";
  run.config.parallel.chunks = 2;
  run.config.model.layers = 4;
  const nlohmann::json shared = run.run_with({.pipeline = 2});
  run.config.parallel.schedule = "1f1b";
  run.config.parallel.chunks = 1;
  EXPECT_EQ(bits_of(shared), bits_of(run.run_with({})));
}

/// Steps of one size are those of a run of that size; the next size begins behind their samples.
TEST(BatchRampRun, EachSizeIsARunOfThatSize) {
  RampRun run;
  run.config.run.steps = 2;
  const nlohmann::json ramp = run.run_with({});
  run.config.data.ramp_from = 0;
  run.config.data.ramp_steps = 0;
  run.config.data.global_batch = 4;
  const nlohmann::json small = run.run_with({});
  EXPECT_EQ(ramp["param_digest"], small["param_digest"]);
  EXPECT_EQ(ramp["loss"], small["loss"]);
}

/// Text is read on where the size before ended. Weights that stay make losses those of the samples.
TEST(BatchRampRun, ASizeBeginsBehindTheSamplesBeforeIt) {
  RampRun run;
  run.config.optim.lr = 1e-30;
  run.config.data.global_batch = 8;
  run.config.data.ramp_steps = 2;
  run.config.run.steps = 3;  // samples 0-3, 4-7, 8-15
  const nlohmann::json ramp = run.run_with({});
  run.config.data.ramp_from = 0;
  run.config.data.ramp_steps = 0;
  run.config.run.steps = 2;  // 0-7, 8-15
  const nlohmann::json plain = run.run_with({});
  EXPECT_EQ(ramp["loss"], plain["loss"]);
  run.config.run.steps = 3;
  EXPECT_NE(run.run_with({})["loss"], plain["loss"]);
}

/// Of a task of our own, that keeps the numbers of its samples.
TEST(BatchRampRun, SeesEachSampleOnce) {
  struct Counter final : Task {
    struct Module : torch::nn::Module {
      at::Tensor weight = register_parameter("weight", torch::zeros({1}));
    };
    torch::nn::Module& module() override { return *module_; }
    int64_t samples() const override { return 1000; }
    at::Tensor losses(const Samples& samples, const RankContext&) override {
      for (int64_t s = 0; s < samples.count; ++s) seen.push_back(samples.first + s);
      return module_->weight * torch::ones({samples.count});
    }
    std::shared_ptr<Module> module_ = std::make_shared<Module>();
    std::vector<int64_t> seen;
  };
  RampRun run;
  run.config.model.family = "counter";
  run.config.run.worker = "own";
  const testing::TempFolder out;
  std::vector<std::shared_ptr<Counter>> counters(3);
  net::run_on_threads(3, [&](const std::shared_ptr<net::Group>& world) {
    auto& counter = counters[static_cast<size_t>(world->rank())];
    counter = std::make_shared<Counter>();
    Trainer trainer({.config = run.config,
                     .run_folder = out.path(),
                     .console_fd = -1,
                     .tasks = {{"counter", [&](const plan::TrainConfig&) { return counter; }}}},
                    world->endpoint());
    trainer.run();
  });
  std::vector<int64_t> seen;
  for (const auto& counter : counters) {
    seen.insert(seen.end(), counter->seen.begin(), counter->seen.end());
  }
  std::sort(seen.begin(), seen.end());
  ASSERT_EQ(seen.size(), 80u);
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], static_cast<int64_t>(i));
}

}  // namespace
}  // namespace lockstep
