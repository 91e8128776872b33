#include "lockstep/precision/loss_scaler.h"

#include <gtest/gtest.h>

#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/optim/clip.h"
#include "lockstep/optim/sgd.h"

namespace lockstep::precision {
namespace {

const LossScalerOptions kDynamic{.dynamic = true, .first = 65536, .growth_steps = 4};

TEST(LossScaler, DoublesAfterCleanStepsAndHalvesAfterAnOverflow) {
  LossScaler scaler(kDynamic);
  for (int step = 0; step < 3; ++step) scaler.clean();
  EXPECT_EQ(scaler.scale(), 65536);
  scaler.clean();
  EXPECT_EQ(scaler.scale(), 131072);
  EXPECT_TRUE(scaler.overflow());
  EXPECT_EQ(scaler.scale(), 65536);
  // Clean steps before an overflow do not count.
  for (int step = 0; step < 3; ++step) scaler.clean();
  EXPECT_TRUE(scaler.overflow());
  EXPECT_EQ(scaler.scale(), 32768);
  for (int step = 0; step < 3; ++step) scaler.clean();
  EXPECT_EQ(scaler.scale(), 32768);
  scaler.clean();
  EXPECT_EQ(scaler.scale(), 65536);
  EXPECT_EQ(scaler.overflows(), 2);
}

TEST(LossScaler, HysteresisIsHowManyOverflowsAScaleMayHave) {
  LossScalerOptions options = kDynamic;
  options.hysteresis = 2;
  LossScaler scaler(options);
  EXPECT_TRUE(scaler.overflow());
  EXPECT_EQ(scaler.scale(), 65536);
  scaler.clean();  // between them: they need not follow each other
  EXPECT_TRUE(scaler.overflow());
  EXPECT_EQ(scaler.scale(), 32768);
  EXPECT_TRUE(scaler.overflow());
  EXPECT_EQ(scaler.scale(), 32768);
}

TEST(LossScaler, StaysWithinItsLimits) {
  LossScalerOptions options = kDynamic;
  options.min = 16384;
  LossScaler scaler(options);
  EXPECT_TRUE(scaler.overflow());
  EXPECT_TRUE(scaler.overflow());
  EXPECT_EQ(scaler.scale(), 16384);
  EXPECT_FALSE(scaler.overflow());  // nothing is left to try
  EXPECT_EQ(scaler.scale(), 16384);
  for (int step = 0; step < 4 * 20; ++step) scaler.clean();
  EXPECT_EQ(scaler.scale(), kLargestScale);
}

TEST(LossScaler, AFixedScaleStays) {
  LossScaler scaler({.first = 1024});
  for (int step = 0; step < 5000; ++step) scaler.clean();
  EXPECT_FALSE(scaler.overflow());
  EXPECT_EQ(scaler.scale(), 1024);
  EXPECT_EQ(LossScaler().scale(), 1);
}

TEST(LossScaler, AMP_1_TheLimitIsOneOfTheGradientsThemselves) {
  const LossScaler scaler({.first = 1024});
  std::vector<float> weights = {0, 0};
  const std::vector<float> scaled = {3 * 1024, 4 * 1024};
  optim::Sgd sgd({.momentum = 0, .weight_decay = 0},
                 {{.master = weights.data(), .gradient = scaled.data(), .count = 2}});
  const double norm = scaler.unscaled(5 * 1024);
  EXPECT_EQ(norm, 5);
  sgd.step(/*lr=*/1, optim::clip_scale(norm, /*limit=*/1) / scaler.scale());
  EXPECT_FLOAT_EQ(weights[0], -0.6f);
  EXPECT_FLOAT_EQ(weights[1], -0.8f);
}

TEST(LossScaler, AMP_3_ItsStateGoesThroughACheckpoint) {
  LossScaler before(kDynamic);
  for (int step = 0; step < 3; ++step) before.clean();
  const std::string saved = before.state().dump();
  LossScaler after(kDynamic);
  after.restore(nlohmann::json::parse(saved));
  EXPECT_EQ(after, before);
  after.clean();
  EXPECT_EQ(after.scale(), 131072);

  LossScaler overflowed(kDynamic);
  EXPECT_TRUE(overflowed.overflow());
  after.restore(overflowed.state());
  EXPECT_EQ(after, overflowed);
}

TEST(LossScaler, RefusesWhatIsNoStateOfOne) {
  LossScaler scaler(kDynamic);
  EXPECT_THROW(scaler.restore(nlohmann::json::object()), StateError);
  nlohmann::json odd = scaler.state();
  odd["scale"] = 1000;
  EXPECT_THROW(scaler.restore(odd), StateError);
  EXPECT_EQ(scaler, LossScaler(kDynamic));
}

TEST(LossScaler, RefusesOptionsThatCannotBe) {
  EXPECT_THROW(LossScaler({.first = 1000}), UsageError);
  EXPECT_THROW(LossScaler({.first = 0.5}), UsageError);
  EXPECT_THROW(LossScaler({.dynamic = true, .first = 2, .min = 4}), UsageError);
  EXPECT_THROW(LossScaler({.dynamic = true, .first = 2, .growth_steps = 0}), UsageError);
  EXPECT_THROW(LossScaler({.dynamic = true, .first = 2, .hysteresis = 0}), UsageError);
}

TEST(LossScaler, OnlyFp16HasAScale) {
  plan::TrainConfig config;
  EXPECT_EQ(LossScaler(scaler_options_of(config)).scale(), 1);
  config.precision.compute = "bf16";
  EXPECT_EQ(LossScaler(scaler_options_of(config)).scale(), 1);
  config.precision.compute = "fp16";
  EXPECT_EQ(LossScaler(scaler_options_of(config)).scale(), 65536);
  config.precision.loss_scale = "256";
  EXPECT_EQ(LossScaler(scaler_options_of(config)).scale(), 256);
}

}  // namespace
}  // namespace lockstep::precision
