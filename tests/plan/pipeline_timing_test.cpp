#include "lockstep/plan/pipeline_timing.h"

#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "tests/plan/pipelines.h"

namespace lockstep::plan {
namespace {

double simulated(const std::string& name, int stages, int chunks, int micro_batches,
                 const StageSeconds& seconds) {
  const auto schedule = plan_pipeline({name, stages, chunks, micro_batches});
  return simulate(schedule, even_costs(seconds, chunks)).bubble();
}

TEST(PipelineTiming, BubbleIsExact) {
  for (const int P : {2, 4, 8}) {
    for (const int M : {4, 8, 16}) {
      SCOPED_TRACE(testing::Message() << P << " stages, " << M << " micro-batches");
      const double form = (P - 1.0) / (M + P - 1);
      for (const StageSeconds& seconds : {StageSeconds{1, 1, 1}, {2, 3, 1}, {1, 0.5, 4}}) {
        EXPECT_DOUBLE_EQ(simulated("gpipe", P, 1, M, seconds), form);
        EXPECT_DOUBLE_EQ(simulated("1f1b", P, 1, M, seconds), form);
      }
      for (const int v : {2, 4}) {
        if (M % P != 0) continue;
        EXPECT_NEAR(simulated("interleaved", P, v, M, {1, 1, 1}), (P - 1.0) / (v * M + P - 1),
                    1e-12);
      }
      for (const StageSeconds& seconds : {StageSeconds{1, 1, 1}, {2, 3, 1}, {3, 2, 2}}) {
        if (M < P) continue;
        const auto& [F, B, W] = seconds;
        const double idle = (P - 1) * (F + B - W);  // of each stage
        EXPECT_NEAR(simulated("zero-bubble", P, 1, M, seconds), idle / (M * (F + B + W) + idle),
                    1e-12);
      }
      if (M >= 2 * P - 1) {
        EXPECT_NEAR(simulated("zero-bubble-v", P, 2, M, {1, 1, 1}), (P - 1.0) / (6 * M + P - 1),
                    1e-12);
      }
    }
  }
}

TEST(PipelineTiming, TheFormulasAreTheClockWhereTheyHold) {
  for (const StageSeconds& seconds : {StageSeconds{1, 1, 1}, {2, 3, 1}, {1, 2, 4}, {4, 1, 1}}) {
    for_each_pipeline([&](const PipelineSchedule& schedule) {
      const auto formula = bubble_formula(schedule, seconds);
      const double clock = simulate(schedule, even_costs(seconds, schedule.chunks)).bubble();
      if (formula) {
        ASSERT_NEAR(*formula, clock, 1e-12);
      }
      const bool always = schedule.name == "gpipe" || schedule.name == "1f1b";
      ASSERT_TRUE(formula || !always || schedule.micro_batches == 0);
    });
  }
  EXPECT_TRUE(bubble_formula(plan_pipeline({"zero-bubble", 4, 1, 4}), {1, 1, 1}));
  EXPECT_FALSE(bubble_formula(plan_pipeline({"zero-bubble", 4, 1, 3}), {1, 1, 1}));
  EXPECT_FALSE(bubble_formula(plan_pipeline({"zero-bubble", 4, 1, 4}), {1, 1, 2}));
  EXPECT_TRUE(bubble_formula(plan_pipeline({"zero-bubble-v", 4, 2, 7}), {1, 1, 1}));
  EXPECT_FALSE(bubble_formula(plan_pipeline({"zero-bubble-v", 4, 2, 7}), {1, 2, 1}));
  EXPECT_TRUE(bubble_formula(plan_pipeline({"interleaved", 4, 2, 8}), {1, 1, 1}));
  EXPECT_FALSE(bubble_formula(plan_pipeline({"interleaved", 4, 2, 7}), {1, 1, 1}));
}

TEST(PipelineTiming, AVHasNoBubbleInsideAStage) {
  const auto schedule = plan_pipeline({"zero-bubble-v", 4, 2, 8});
  for (const StageSpan& stage : simulate(schedule, even_costs({1, 1, 1}, 2)).stages) {
    EXPECT_NEAR(stage.idle_share(), 0, 1e-12);
  }
  const auto one = plan_pipeline({"1f1b", 4, 1, 8});
  EXPECT_GT(simulate(one, even_costs({1, 1, 1}, 1)).stages[0].idle_share(), 0.2);
}

/// A stage's span of a step is its work, 2 M chunks of F + B + W, and the next step follows at
/// once.
TEST(PipelineTiming, WithoutABarrierAVHasNoBubbleAtAll) {
  constexpr int kSteps = 3;
  for (const int P : {2, 4}) {
    for (const int M : {2 * P, 2 * P + 1, 4 * P}) {
      SCOPED_TRACE(testing::Message() << P << " stages, " << M << " micro-batches");
      const double chunk = 0.5;  // of half a stage
      const auto schedule = plan_pipeline({"zero-bubble-v", P, 2, M});
      const auto spans = spans_without_barrier(schedule, even_costs({1, 1, 1}, 2), kSteps);
      ASSERT_EQ(spans.size(), 3u);
      for (int stage = 0; stage < P; ++stage) {
        for (int step = 0; step < kSteps; ++step) {
          const StageSpan& span = spans[static_cast<size_t>(step)][static_cast<size_t>(stage)];
          EXPECT_NEAR(span.last_end - span.first_start, 2 * M * 3 * chunk, 1e-9);
          EXPECT_NEAR(span.first_start, stage * chunk + step * 2 * M * 3 * chunk, 1e-9);
        }
        EXPECT_NEAR(joined_span(spans, stage).idle_share(), 0, 1e-12);
      }
    }
  }
}

/// The wait of 1F1B lies inside the steps, and stays: that of its first stage for the first
/// gradient, of (P-1)(F + B + W), in each of them.
TEST(PipelineTiming, WithoutABarrier1F1BStillWaits) {
  for (const int P : {2, 4}) {
    const int M = 2 * P;
    const auto spans =
        spans_without_barrier(plan_pipeline({"1f1b", P, 1, M}), even_costs({1, 1, 1}, 1), 3);
    for (const auto& step : spans) {
      EXPECT_NEAR(step[0].last_end - step[0].first_start, 3 * (M + P - 1), 1e-9);
    }
    EXPECT_NEAR(joined_span(spans, 0).idle_share(), (P - 1.0) / (M + P - 1), 1e-12);
    // ZB-H1's is of (P-1)(F + B - W).
    const auto less =
        spans_without_barrier(plan_pipeline({"zero-bubble", P, 1, M}), even_costs({1, 1, 1}, 1), 3);
    EXPECT_NEAR(joined_span(less, 0).idle_share(), (P - 1.0) / (3 * M + P - 1), 1e-12);
  }
}

/// One step is a step.
TEST(PipelineTiming, AStepAloneHasNoNext) {
  for_each_pipeline([](const PipelineSchedule& schedule) {
    if (schedule.micro_batches == 0) return;
    const auto costs = even_costs({1, 2, 1}, schedule.chunks);
    const auto alone = simulate(schedule, costs).stages;
    const auto spans = spans_without_barrier(schedule, costs, 1);
    for (size_t stage = 0; stage < alone.size(); ++stage) {
      ASSERT_EQ(spans[0][stage].first_start, alone[stage].first_start);
      ASSERT_EQ(spans[0][stage].last_end, alone[stage].last_end);
      ASSERT_EQ(spans[0][stage].busy_seconds, alone[stage].busy_seconds);
    }
  });
}

TEST(PipelineTiming, EachSmallerBubbleHasItsPrice) {
  const StageSeconds seconds{1, 1, 1};
  EXPECT_LT(simulated("interleaved", 4, 2, 8, seconds), simulated("1f1b", 4, 1, 8, seconds));
  EXPECT_LT(simulated("zero-bubble", 4, 1, 8, seconds), simulated("interleaved", 4, 2, 8, seconds));
  EXPECT_LT(simulated("zero-bubble-v", 4, 2, 8, seconds),
            simulated("zero-bubble", 4, 1, 8, seconds));
}

TEST(PipelineTiming, AMessageTravelsWhileItsStageComputes) {
  PipelineCosts costs = even_costs({1, 1, 1}, 1);
  costs.message_seconds = 0.25;
  const auto times = simulate(plan_pipeline({"1f1b", 2, 1, 1}), costs);
  // F 0-1, message to 1.25, F 1.25-2.25, B 2.25-4.25, message to 4.5, B 4.5-6.5.
  EXPECT_DOUBLE_EQ(times.seconds, 6.5);
  EXPECT_DOUBLE_EQ(times.bubble(), 1 - 6 / (2 * 6.5));
  std::string text;
  for (const PipelineEvent& event : times.events) {
    text +=
        base::str(event.stage, text_of(event.step, false), " ", event.start, "-", event.end, " ");
  }
  EXPECT_EQ(text,
            "0F0 0-1 0SF0 1-1 0RB0 1-4.5 0B0 4.5-6.5 "
            "1RF0 0-1.25 1F0 1.25-2.25 1B0 2.25-4.25 1SB0 4.25-4.25 ");
  // Sent one after the other, they travel side by side.
  EXPECT_DOUBLE_EQ(simulate(plan_pipeline({"gpipe", 2, 1, 8}), costs).seconds, 9 * 3 + 0.5);
}

TEST(PipelineTiming, StagesAndChunksHaveTheirOwnCosts) {
  const auto schedule = plan_pipeline({"zero-bubble-v", 2, 2, 1});
  PipelineCosts costs;
  costs.forward.by_stage = {{1, 2}, {4, 8}};
  costs.backward.everywhere = 0;
  costs.weight.everywhere = 16;
  const auto times = simulate(schedule, costs);
  EXPECT_DOUBLE_EQ(times.stages[0].busy_seconds, 1 + 2 + 32);
  EXPECT_DOUBLE_EQ(times.stages[1].busy_seconds, 4 + 8 + 32);
  EXPECT_DOUBLE_EQ(times.stages[1].first_start, 1);
  costs.forward.by_stage = {{1, 2}, {4}};
  EXPECT_THROW(simulate(schedule, costs), UsageError);
  costs.forward.by_stage = {{1, 2}};
  EXPECT_THROW(simulate(schedule, costs), UsageError);
}

TEST(PipelineTiming, AScheduleThatStandsStillIsRefused) {
  PipelineSchedule schedule = plan_pipeline({"1f1b", 2, 1, 1});
  std::erase(schedule.steps[0], PipelineStep{PipelineOp::send_forward, 0, 0});
  EXPECT_THROW(simulate(schedule, {}), UsageError);
}

TEST(Bubble, IsTheIdleShareOfAllStagesTogether) {
  EXPECT_DOUBLE_EQ(bubble_fraction({{10, 14, 4}, {11, 15, 2}}), 4.0 / 10);
  EXPECT_DOUBLE_EQ(bubble_fraction({{10, 14, 4}}), 0);
  // A stage that computes nothing is no stage.
  EXPECT_DOUBLE_EQ(bubble_fraction({{10, 14, 4}, {0, 0, 0}}), 0);
  EXPECT_DOUBLE_EQ(bubble_fraction({}), 0);
  EXPECT_DOUBLE_EQ((StageSpan{11, 15, 2}.idle_share()), 0.5);
  EXPECT_DOUBLE_EQ(StageSpan{}.idle_share(), 0);
}

}  // namespace
}  // namespace lockstep::plan
