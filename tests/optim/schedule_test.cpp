#include "lockstep/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <tuple>

#include "lockstep/base/error.h"

namespace lockstep::optim {
namespace {

TEST(Schedule, WarmupRisesInEqualStepsToThePeak) {
  const Schedule schedule{.peak = 0.5, .warmup_steps = 4, .steps = 20};
  EXPECT_EQ(learning_rate(schedule, 0), 0.125);
  EXPECT_EQ(learning_rate(schedule, 1), 0.25);
  EXPECT_EQ(learning_rate(schedule, 2), 0.375);
  EXPECT_EQ(learning_rate(schedule, 3), 0.5);
  EXPECT_LT(learning_rate(schedule, 4), 0.5);
}

TEST(Schedule, EndsAtTheMinimumExactly) {
  for (const Decay decay : {Decay::cosine, Decay::linear}) {
    for (const int64_t warmup : {0, 1, 7, 18}) {
      const Schedule schedule{.peak = 4e-3, .warmup_steps = warmup, .steps = 20, .decay = decay};
      EXPECT_EQ(learning_rate(schedule, 19), 4e-3 * 0.1);
      EXPECT_EQ(learning_rate(schedule, 1000), 4e-3 * 0.1);
    }
  }
}

TEST(Schedule, CosineFollowsTheFormula) {
  const Schedule schedule{.peak = 4e-3, .warmup_steps = 50, .steps = 600};
  for (int64_t step = 49; step < 600; ++step) {
    const double progress = static_cast<double>(step - 49) / 550;
    const double expected = 4e-3 * (0.1 + 0.9 * 0.5 * (1 + std::cos(std::numbers::pi * progress)));
    EXPECT_NEAR(learning_rate(schedule, step), expected, 1e-17) << step;
  }
}

TEST(Schedule, LinearFollowsTheFormula) {
  const Schedule schedule{.peak = 1, .steps = 5, .decay = Decay::linear, .min_ratio = 0};
  EXPECT_EQ(learning_rate(schedule, 0), 1);
  EXPECT_EQ(learning_rate(schedule, 1), 0.75);
  EXPECT_EQ(learning_rate(schedule, 4), 0);
}

TEST(Schedule, ConstantStaysAtThePeak) {
  const Schedule schedule{.peak = 2, .warmup_steps = 2, .steps = 5, .decay = Decay::constant};
  EXPECT_EQ(learning_rate(schedule, 0), 1);
  for (int64_t step = 1; step < 5; ++step) EXPECT_EQ(learning_rate(schedule, step), 2);
}

TEST(Schedule, WarmupMayFillTheRunOrMore) {
  const Schedule whole{.peak = 3, .warmup_steps = 10, .steps = 10};
  EXPECT_EQ(learning_rate(whole, 9), 3);
  const Schedule longer{.peak = 3, .warmup_steps = 30, .steps = 10};
  EXPECT_EQ(learning_rate(longer, 9), 1);
  const Schedule one{.peak = 3, .warmup_steps = 0, .steps = 1};
  EXPECT_EQ(learning_rate(one, 0), 3);
}

TEST(Schedule, RefusesWhatCannotBe) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Schedule bad[] = {
      {.peak = 0, .steps = 10},
      {.peak = -1, .steps = 10},
      {.peak = nan, .steps = 10},
      {.peak = 1, .warmup_steps = -1, .steps = 10},
      {.peak = 1, .steps = 0},
      {.peak = 1, .steps = -3},
      {.peak = 1, .steps = 10, .min_ratio = -0.1},
      {.peak = 1, .steps = 10, .min_ratio = 1.5},
      {.peak = 1, .steps = 10, .min_ratio = nan},
  };
  for (const Schedule& schedule : bad) EXPECT_THROW(learning_rate(schedule, 0), UsageError);
  EXPECT_THROW(learning_rate({.peak = 1, .steps = 10}, -1), UsageError);
  try {
    check({.peak = 1, .warmup_steps = -1, .steps = 10});
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("optim.warmup_steps is -1"), std::string::npos)
        << error.what();
  }
}

TEST(Schedule, DecayNames) {
  EXPECT_EQ(decay_of("cosine"), Decay::cosine);
  EXPECT_EQ(decay_of("linear"), Decay::linear);
  EXPECT_EQ(decay_of("constant"), Decay::constant);
  try {
    decay_of("cosin");
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean cosine"), std::string::npos);
  }
}

/// The edges that other trainers got wrong: no division by zero, the last rate is the peak.
TEST(Schedule, LR_1_EdgesOfWarmup) {
  for (const Decay decay : {Decay::cosine, Decay::linear, Decay::constant}) {
    const Schedule whole{.peak = 0.3, .warmup_steps = 10, .steps = 10, .decay = decay};
    for (int64_t step = 0; step < 10; ++step) {
      EXPECT_DOUBLE_EQ(learning_rate(whole, step), 0.3 * static_cast<double>(step + 1) / 10);
    }
    EXPECT_EQ(learning_rate(whole, 9), 0.3);
    const Schedule none{.peak = 0.3, .warmup_steps = 0, .steps = 10, .decay = decay};
    EXPECT_EQ(learning_rate(none, 0), 0.3);
    EXPECT_THROW(check({.peak = 0.3, .warmup_steps = -1, .steps = 10, .decay = decay}), UsageError);
  }
}

TEST(Schedule, LR_1_BatchScaling) {
  EXPECT_EQ(scaled_rate(0.1, 256, 1024, BatchScaling::sqrt), 0.2);
  EXPECT_EQ(scaled_rate(0.1, 256, 1024, BatchScaling::linear), 0.4);
  EXPECT_EQ(scaled_rate(0.1, 1024, 256, BatchScaling::sqrt), 0.05);
  EXPECT_EQ(scaled_rate(0.1, 0, 1024, BatchScaling::none), 0.1);
  for (const auto& [base, global, field] :
       {std::tuple{int64_t{0}, int64_t{8}, "optim.base_batch is 0"},
        std::tuple{int64_t{-4}, int64_t{8}, "optim.base_batch is -4"},
        std::tuple{int64_t{8}, int64_t{0}, "data.global_batch is 0"}}) {
    try {
      scaled_rate(0.1, base, global, BatchScaling::linear);
      FAIL() << "accepted";
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find(field), std::string::npos) << error.what();
    }
  }
  EXPECT_EQ(batch_scaling_of("none"), BatchScaling::none);
  EXPECT_EQ(batch_scaling_of("linear"), BatchScaling::linear);
  EXPECT_EQ(batch_scaling_of("sqrt"), BatchScaling::sqrt);
  EXPECT_THROW(batch_scaling_of("square"), UsageError);
}

}  // namespace
}  // namespace lockstep::optim
