#include "lockstep/train/step_guard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

plan::TrainConfig policies(const char* on_nan, const char* on_spike = "none") {
  plan::TrainConfig config;
  config.run.on_nan = on_nan;
  config.run.on_spike = on_spike;
  return config;
}

TEST(StepGuard, TakesStepsAndStopsAtWhatIsNoNumber) {
  StepGuard guard(policies("stop"));
  EXPECT_EQ(guard.judge(2, 1), Verdict::take);
  EXPECT_EQ(guard.judge(1e9, 1), Verdict::take);  // nothing is said of leaps
  EXPECT_EQ(guard.judge(2, kInf), Verdict::stop);
  EXPECT_EQ(StepGuard(policies("stop")).judge(kNan, 1), Verdict::stop);
}

TEST(StepGuard, SkipsButNotForEver) {
  StepGuard guard(policies("skip"));
  for (int round = 0; round < 3; ++round) {
    for (int step = 0; step < kMostInARow; ++step) EXPECT_EQ(guard.judge(kNan, 1), Verdict::skip);
    EXPECT_EQ(guard.judge(2, 1), Verdict::take);
  }
  EXPECT_EQ(guard.skipped(), 3 * kMostInARow);
  for (int step = 0; step < kMostInARow; ++step) EXPECT_EQ(guard.judge(2, kNan), Verdict::skip);
  EXPECT_EQ(guard.judge(2, kNan), Verdict::stop);
  EXPECT_NE(guard.reason().find("10 steps before it"), std::string::npos) << guard.reason();
}

TEST(StepGuard, GoesBackToOneCopyAFewTimes) {
  StepGuard guard(policies("rewind"));
  EXPECT_TRUE(guard.rewinds());
  EXPECT_FALSE(StepGuard(policies("skip", "skip")).rewinds());
  for (int round = 0; round < 2; ++round) {
    guard.copied();
    for (int back = 0; back < kMostRewinds; ++back) {
      EXPECT_EQ(guard.judge(2, kNan), Verdict::rewind);
      EXPECT_EQ(guard.judge(2, 1), Verdict::take);
    }
  }
  EXPECT_EQ(guard.rewound(), 2 * kMostRewinds);
  EXPECT_EQ(guard.judge(2, kNan), Verdict::stop);
  EXPECT_NE(guard.reason().find("same copy 3 times"), std::string::npos) << guard.reason();
}

TEST(StepGuard, ALeapIsAgainstTheMeanOfStepsThatWereTaken) {
  plan::TrainConfig config = policies("stop", "skip");
  config.run.spike_factor = 2;
  StepGuard guard(config);
  for (size_t step = 0; step + 1 < kFewestLosses; ++step) {
    EXPECT_EQ(guard.judge(3, 1), Verdict::take);
  }
  EXPECT_EQ(guard.judge(100, 1), Verdict::take);  // too few to compare with
  for (size_t step = 0; step < kSpikeWindow; ++step) EXPECT_EQ(guard.judge(3, 1), Verdict::take);
  EXPECT_EQ(guard.judge(6, 1), Verdict::take);
  for (size_t step = 0; step < kSpikeWindow; ++step) EXPECT_EQ(guard.judge(3, 1), Verdict::take);
  // A leap never joins the mean: each of these would raise it past the next.
  for (int step = 0; step < 5; ++step) EXPECT_EQ(guard.judge(6.01, 1), Verdict::skip);
  EXPECT_NE(guard.reason().find("2 times the mean 3"), std::string::npos) << guard.reason();
  EXPECT_EQ(guard.judge(5.9, 1), Verdict::take);
  EXPECT_EQ(guard.skipped(), 5);
}

TEST(StepGuard, AnOverflowIsTheScalesAffairUntilItIsSmall) {
  plan::TrainConfig config = policies("stop");
  config.precision.compute = "fp16";
  config.precision.first_scale = 4;
  StepGuard guard(config);
  EXPECT_EQ(guard.judge(2, kInf), Verdict::skip);
  EXPECT_EQ(guard.loss_scale(), 2);
  EXPECT_EQ(guard.judge(2, kNan), Verdict::skip);
  EXPECT_EQ(guard.loss_scale(), 1);
  EXPECT_EQ(guard.judge(2, kInf), Verdict::stop);
  // A loss that is no number was so before it was scaled.
  StepGuard other(config);
  EXPECT_EQ(other.judge(kNan, kNan), Verdict::stop);
  EXPECT_EQ(other.loss_scale(), 4);
}

TEST(StepGuard, ItsStateGoesThroughACheckpoint) {
  plan::TrainConfig config = policies("rewind", "skip");
  config.precision.compute = "fp16";
  config.precision.growth_steps = 40;
  StepGuard one(config);
  for (int step = 0; step < 15; ++step) one.judge(2, 1);
  one.judge(2, kInf);
  one.judge(kNan, 1);
  StepGuard two(config);
  two.restore(nlohmann::json::parse(one.state().dump()));
  EXPECT_EQ(two.state(), one.state());
  for (const double loss : {2.0, 7.0, 1.0, 3.5}) {
    EXPECT_EQ(two.judge(loss, 1), one.judge(loss, 1)) << loss;
  }
  EXPECT_EQ(two.state(), one.state());
  EXPECT_THROW(two.restore(nlohmann::json::array()), StateError);
  EXPECT_EQ(two.state(), one.state());
}

}  // namespace
}  // namespace lockstep
