// Keys without an effect, and settings that cannot go together, are refused with what fits.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/plan/train_config.h"

namespace lockstep::plan {
namespace {

using Settings = std::vector<std::pair<const char*, const char*>>;

std::string refusal(const Settings& settings) {
  TrainConfig config = preset("nano");
  for (const auto& [key, text] : settings) set_key(config, key, text);
  try {
    check(config, 1);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

void expect_refused(const Settings& settings, const std::string& fits) {
  const std::string said = refusal(settings);
  EXPECT_NE(said.find(fits), std::string::npos) << settings[0].first << ": " << said;
}

TEST(StepRules, ScaleKeysAreOfFp16) {
  expect_refused({{"precision.loss_scale", "1024"}}, "--set precision.compute=fp16");
  for (const char* key : {"precision.first_scale", "precision.min_scale", "precision.growth_steps",
                          "precision.hysteresis"}) {
    expect_refused({{key, "16"}}, "--set precision.compute=fp16");
    expect_refused({{"precision.compute", "bf16"}, {key, "16"}}, "--set precision.compute=fp16");
    expect_refused({{"precision.compute", "fp16"}, {"precision.loss_scale", "1024"}, {key, "16"}},
                   "--set precision.loss_scale=dynamic");
  }
}

TEST(StepRules, ScalesArePowersOfTwo) {
  const std::pair<const char*, const char*> fp16 = {"precision.compute", "fp16"};
  expect_refused({fp16, {"precision.loss_scale", "1000"}}, "--set precision.loss_scale=1024");
  expect_refused({fp16, {"precision.loss_scale", "large"}}, "--set precision.loss_scale=dynamic");
  expect_refused({fp16, {"precision.loss_scale", "0.5"}}, "--set precision.loss_scale=dynamic");
  expect_refused({fp16, {"precision.first_scale", "3000"}}, "--set precision.first_scale=2048");
  expect_refused({fp16, {"precision.min_scale", "5"}}, "--set precision.min_scale=4");
  expect_refused({fp16, {"precision.first_scale", "4"}, {"precision.min_scale", "8"}},
                 "--set precision.min_scale=1");
}

TEST(StepRules, PoliciesWithoutAnEffect) {
  expect_refused({{"run.spike_factor", "5"}}, "--set run.on_spike=skip");
  expect_refused({{"run.rewind_every", "7"}}, "--set run.on_nan=rewind");
  EXPECT_EQ(refusal({{"run.on_spike", "rewind"}, {"run.spike_factor", "5"}}), "");
  EXPECT_EQ(refusal({{"run.on_nan", "rewind"}, {"run.rewind_every", "7"}}), "");
}

TEST(StepRules, WhatIsOutsideMemoryIsNotCopied) {
  expect_refused({{"run.on_nan", "rewind"}, {"memory.offload", "disk"}},
                 "--set memory.offload=none");
  EXPECT_EQ(refusal({{"run.on_nan", "skip"}, {"memory.offload", "disk"}}), "");
  expect_refused({{"optim.ema", "0.9"}, {"memory.offload", "disk"}, {"parallel.shard", "zero3"}},
                 "--set memory.offload=none");
  EXPECT_EQ(refusal({{"optim.ema", "0.9"}, {"memory.offload", "disk"}}), "");
}

TEST(StepRules, NoiseIsMeasuredBetweenLeaves) {
  EXPECT_EQ(refusal({{"log.noise_scale", "true"}}), "");
  expect_refused({{"log.noise_scale", "true"}, {"numerics.grains", "1"}}, "--set numerics.grains=");
  expect_refused({{"log.noise_scale", "true"}, {"numerics.context_grains", "2"}},
                 "--set parallel.context=1");
}

TEST(StepRules, ARampFitsItsLeaves) {
  expect_refused({{"data.ramp_from", "7"}, {"data.ramp_steps", "10"}}, "data.ramp_from=");
  EXPECT_EQ(refusal({{"data.ramp_from", "4"}, {"data.ramp_steps", "10"}, {"numerics.grains", "1"}}),
            "");
}

}  // namespace
}  // namespace lockstep::plan
