// The moving average of parameters: the same on any layout, and the run without it is unchanged.

#include "lockstep/train/param_average.h"

#include <gtest/gtest.h>

#include "lockstep/train/model_file.h"
#include "tests/train/layouts.h"
#include "tests/train/run_bits.h"

namespace lockstep {
namespace {

using testing::bits_of;
using testing::expect_planned_bytes;
using testing::Layout;

struct AverageRun : testing::LayoutRun {
  AverageRun() {
    config.model.width = 20;
    config.model.context = 12;
    config.data.micro_batch = 1;
    config.log.eval_every = 2;
    config.optim.ema = 0.75;
  }
};

void expect_same(AverageRun& run, const std::vector<Layout>& layouts) {
  const nlohmann::json alone = run.run_with({});
  run.config.optim.ema = 0;
  const nlohmann::json without = run.run_with({});
  run.config.optim.ema = 0.75;
  EXPECT_EQ(bits_of(alone), bits_of(without));
  EXPECT_FALSE(without.contains("ema_digest"));
  EXPECT_NE(alone["ema_digest"], alone["param_digest"]);
  EXPECT_NE(alone["val_loss_ema"], alone["val_loss"]);
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(::testing::PrintToString(layout));
    const nlohmann::json shared = run.run_with(layout);
    EXPECT_EQ(bits_of(shared), bits_of(alone));
    EXPECT_EQ(shared["ema_digest"], alone["ema_digest"]);
    EXPECT_EQ(shared["val_loss_ema"], alone["val_loss_ema"]);
    expect_planned_bytes(shared);
  }
}

TEST(ParamAverage, HasTheBitsOfOneRank) {
  AverageRun run;
  expect_same(run, testing::layouts());
}

TEST(ParamAverage, HasTheBitsOfOneRankInTensorGrains) {
  AverageRun run;
  run.config.numerics.tensor_grains = 2;
  expect_same(run, testing::tensor_layouts());
}

TEST(ParamAverage, HoldsWhatIsPlanned) {
  AverageRun run;
  for (const Layout layout : {Layout{}, Layout{.data = 3}, Layout{.data = 3, .shard = "zero2"},
                              Layout{.data = 2, .shard = "zero3"}, Layout{.pipeline = 2}}) {
    const nlohmann::json summary = run.run_with(layout);
    for (const auto& rank : summary["ranks"]) {
      EXPECT_EQ(rank["peak_bytes"]["optimizer"], rank["planned_peak_bytes"]["optimizer"])
          << layout << " rank " << rank["rank"];
    }
  }
}

/// The equation, from parameters that are seen after each step.
TEST(ParamAverage, FollowsItsEquation) {
  AverageRun run;
  run.run_on(1, [&](Trainer& trainer, int) {
    ParamAverage average(trainer.state(), 0.75);
    const plan::Piece piece = trainer.params().pieces().front();
    float* const master = trainer.params().master(piece);
    const float start = master[0];
    const float* const values = average.values().data();
    EXPECT_EQ(values[0], start);
    master[0] = 8;
    average.update();
    EXPECT_EQ(values[0], 0.75f * start + 0.25f * 8);
    const float first = values[0];
    master[0] = -4;
    average.update();
    EXPECT_EQ(values[0], 0.75f * first + 0.25f * -4);
    const float second = values[0];
    average.swap();
    EXPECT_EQ(master[0], second);
    EXPECT_EQ(values[0], -4);
    average.swap();
    EXPECT_EQ(master[0], -4);
    EXPECT_EQ(values[0], second);
  });
}

/// Of which nearly nothing stays, it is the parameters: each step has updated it.
TEST(ParamAverage, FollowsTheParameters) {
  AverageRun run;
  run.config.optim.ema = 1e-7;
  const nlohmann::json summary = run.run_with({});
  EXPECT_NEAR(summary["val_loss_ema"].get<double>(), summary["val_loss"].get<double>(), 1e-5);
}

TEST(ParamAverage, IsSavedBesideTheParameters) {
  AverageRun run;
  run.config.parallel.shard = "zero2";
  run.run_on(2, [&](Trainer& trainer, int rank) {
    const TrainResult result = trainer.run();
    if (rank != 0) return;
    const nlohmann::json summary = nlohmann::json::parse(result.summary);
    const std::string folder = summary["run"];
    EXPECT_EQ(load_model(folder + "/ema.safetensors").info.param_digest, summary["ema_digest"]);
    EXPECT_EQ(load_model(folder + "/final.safetensors").info.param_digest, summary["param_digest"]);
  });
}

}  // namespace
}  // namespace lockstep
