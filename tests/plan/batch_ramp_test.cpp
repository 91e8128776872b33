#include "lockstep/plan/batch_ramp.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::plan {
namespace {

TrainConfig ramp_config(int64_t from, int64_t steps) {
  TrainConfig config;
  config.data.global_batch = 16;
  config.data.micro_batch = 2;
  config.numerics.grains = 2;
  config.data.ramp_from = from;
  config.data.ramp_steps = steps;
  return config;
}

TEST(BatchRamp, GrowsInEqualParts) {
  const BatchRamp ramp = ramp_of(ramp_config(8, 10));
  ASSERT_EQ(ramp.stages.size(), 3u);
  EXPECT_EQ(ramp.stages[0].batch.global_batch, 8);
  EXPECT_EQ(ramp.stages[0].batch.micro_batches_per_grain, 2);
  EXPECT_EQ(ramp.stages[1].first_step, 5);
  EXPECT_EQ(ramp.stages[1].first_sample, 40);
  EXPECT_EQ(ramp.stages[1].batch.global_batch, 12);
  EXPECT_EQ(ramp.stages[2].first_step, 10);
  EXPECT_EQ(ramp.stages[2].first_sample, 100);
  EXPECT_EQ(ramp.stages[2].batch, ramp_of(ramp_config(0, 0)).stages[0].batch);
}

TEST(BatchRamp, NoSampleIsLeftOutOrSeenTwice) {
  for (const int64_t steps : {1, 2, 3, 7, 10, 100}) {
    for (const int64_t from : {4, 8, 12}) {
      const BatchRamp ramp = ramp_of(ramp_config(from, steps));
      int64_t next = 0;
      for (int64_t step = 0; step < steps + 5; ++step) {
        const BatchRamp::Stage& stage = ramp.at(step);
        EXPECT_EQ(ramp.samples_before(step), next);
        EXPECT_EQ(ramp.begins(step), step == stage.first_step);
        EXPECT_EQ(stage.batch.grains, 2);
        next += stage.batch.global_batch;
      }
      EXPECT_EQ(ramp.at(0).batch.global_batch, from);
      // Sizes for which there are too few steps have no stage.
      for (size_t i = 1; i < ramp.stages.size(); ++i) {
        EXPECT_LT(ramp.stages[i - 1].first_step, ramp.stages[i].first_step);
      }
      EXPECT_EQ(ramp.at(steps).batch.global_batch, 16);
      EXPECT_LT(ramp.at(steps - 1).batch.global_batch, 16);
    }
  }
}

TEST(BatchRamp, StagesEndWhereTheNextOrTheRunDoes) {
  const BatchRamp ramp = ramp_of(ramp_config(8, 10));
  EXPECT_EQ(ramp.end_of(ramp.stages[0], 100), 5);
  EXPECT_EQ(ramp.end_of(ramp.stages[0], 3), 3);
  EXPECT_EQ(ramp.end_of(ramp.stages[2], 100), 100);
}

TEST(BatchRamp, IsOneStageWhereThereIsNone) {
  const BatchRamp ramp = ramp_of(ramp_config(0, 0));
  ASSERT_EQ(ramp.stages.size(), 1u);
  EXPECT_TRUE(ramp.begins(0));
  EXPECT_FALSE(ramp.begins(1));
  EXPECT_EQ(ramp.samples_before(7), 7 * 16);
}

std::string error_of(const TrainConfig& config) {
  try {
    ramp_of(config);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(BatchRamp, SaysTheNearestSizesThatFit) {
  EXPECT_NE(error_of(ramp_config(6, 10)).find("--set data.ramp_from=4 or --set data.ramp_from=8"),
            std::string::npos)
      << error_of(ramp_config(6, 10));
  EXPECT_NE(error_of(ramp_config(16, 10)).find("--set data.ramp_from=12"), std::string::npos);
  EXPECT_NE(error_of(ramp_config(1, 10)).find("--set data.ramp_from=4"), std::string::npos);
  EXPECT_NE(error_of(ramp_config(8, 0)).find("--set data.ramp_steps="), std::string::npos);
  EXPECT_NE(error_of(ramp_config(0, 8)).find("--set data.ramp_from=4"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::plan
