#include "lockstep/plan/pipeline_schedule.h"

#include <map>
#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "tests/plan/pipelines.h"

namespace lockstep::plan {
namespace {

std::string computing(const PipelineSchedule& schedule, int stage) {
  std::string text;
  for (const PipelineStep& step : schedule.steps[static_cast<size_t>(stage)]) {
    if (is_compute(step.op)) text += text_of(step, schedule.chunks > 1) + " ";
  }
  return text;
}

std::string everything(const PipelineSchedule& schedule, int stage) {
  std::string text;
  for (const PipelineStep& step : schedule.steps[static_cast<size_t>(stage)]) {
    text += text_of(step, schedule.chunks > 1) + " ";
  }
  return text;
}

TEST(PipelineSchedule, OrdersAreThoseOfThePapers) {
  const auto gpipe = plan_pipeline({"gpipe", 2, 1, 3});
  EXPECT_EQ(computing(gpipe, 0), "F0 F1 F2 B0 B1 B2 ");
  EXPECT_EQ(computing(gpipe, 1), "F0 F1 F2 B0 B1 B2 ");
  const auto one = plan_pipeline({"1f1b", 4, 1, 5});
  EXPECT_EQ(computing(one, 0), "F0 F1 F2 F3 B0 F4 B1 B2 B3 B4 ");
  EXPECT_EQ(computing(one, 2), "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4 ");
  EXPECT_EQ(computing(one, 3), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 ");
  // Narayanan et al., figure 4, lower half, with two devices.
  const auto inter = plan_pipeline({"interleaved", 2, 2, 4});
  EXPECT_EQ(computing(inter, 0),
            "F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 B2.0 B3.0 ");
  EXPECT_EQ(computing(inter, 1),
            "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0 ");
  // Qi et al., figure 2, upper half, with three devices.
  const auto zero = plan_pipeline({"zero-bubble", 3, 1, 4});
  EXPECT_EQ(computing(zero, 0), "F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3 ");
  EXPECT_EQ(computing(zero, 1), "F0 F1 B0 F2 B1 W0 F3 B2 W1 B3 W2 W3 ");
  EXPECT_EQ(computing(zero, 2), "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3 ");
  const auto v = plan_pipeline({"zero-bubble-v", 2, 2, 3});
  EXPECT_EQ(computing(v, 0),
            "F0.0 F1.0 F2.0 F0.1 B0.1 W0.1 F1.1 B1.1 W1.1 B0.0 W0.0 F2.1 B2.1 W2.1 B1.0 W1.0 B2.0 "
            "W2.0 ");
  EXPECT_EQ(computing(v, 1),
            "F0.0 F0.1 F1.0 F1.1 B0.1 W0.1 F2.0 B0.0 W0.0 F2.1 B1.1 W1.1 B1.0 B2.1 B2.0 W1.0 W2.1 "
            "W2.0 ");
}

TEST(PipelineSchedule, OneStageComputesForwardAndBackwardInTurn) {
  EXPECT_EQ(everything(plan_pipeline({"gpipe", 1, 1, 2}), 0), "F0 B0 F1 B1 ");
  EXPECT_EQ(everything(plan_pipeline({"1f1b", 1, 1, 2}), 0), "F0 B0 F1 B1 ");
  EXPECT_EQ(everything(plan_pipeline({"zero-bubble", 1, 1, 2}), 0), "F0 B0 W0 F1 B1 W1 ");
  EXPECT_EQ(everything(plan_pipeline({"interleaved", 1, 2, 1}), 0), "F0.0 F0.1 B0.1 B0.0 ");
  EXPECT_EQ(everything(plan_pipeline({"zero-bubble-v", 1, 2, 1}), 0),
            "F0.0 F0.1 B0.1 W0.1 B0.0 W0.0 ");
}

TEST(PipelineSchedule, VirtualStagesGoRoundOrThereAndBack) {
  PipelineSchedule loop;
  loop.stages = 3;
  loop.chunks = 2;
  PipelineSchedule v = loop;
  v.chunks = 3;
  v.placement = PipelinePlacement::v;
  std::vector<int> round;
  std::vector<int> there_and_back;
  for (int k = 0; k < 6; ++k) round.push_back(loop.stage_of(k));
  for (int k = 0; k < 9; ++k) there_and_back.push_back(v.stage_of(k));
  EXPECT_EQ(round, (std::vector<int>{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(there_and_back, (std::vector<int>{0, 1, 2, 2, 1, 0, 0, 1, 2}));
  for (const PipelineSchedule& schedule : {loop, v}) {
    for (int k = 0; k < schedule.virtual_stages(); ++k) {
      EXPECT_EQ(schedule.virtual_stage(schedule.stage_of(k), schedule.chunk_of(k)), k);
    }
  }
}

TEST(PipelineSchedule, BackwardsAndWeightsAscend) {
  for_each_pipeline([](const PipelineSchedule& schedule) {
    for (const auto& steps : schedule.steps) {
      std::map<std::pair<PipelineOp, int>, int> next;
      for (const PipelineStep& step : steps) {
        if (is_compute(step.op)) {
          ASSERT_EQ(step.micro, (next[{step.op, step.chunk}]++)) << text_of(step, true);
        }
      }
      const size_t ops = schedule.micro_batches == 0 ? 0 : schedule.splits_weight ? 3 : 2;
      ASSERT_EQ(next.size(), ops * static_cast<size_t>(schedule.chunks));
      for (const auto& [step, count] : next) ASSERT_EQ(count, schedule.micro_batches);
    }
  });
}

TEST(PipelineSchedule, InFlightIsTheClosedForm) {
  for_each_pipeline([](const PipelineSchedule& schedule) {
    const int P = schedule.stages;
    const int M = schedule.micro_batches;
    const int v = schedule.chunks;
    for (int stage = 0; stage < P; ++stage) {
      const int peak = in_flight(schedule, stage);
      if (schedule.name == "gpipe") {
        ASSERT_EQ(peak, P == 1 ? std::min(M, 1) : M);
      } else if (schedule.name == "1f1b" || schedule.name == "zero-bubble") {
        ASSERT_EQ(peak, std::min(M, P - stage));
      } else if (schedule.name == "interleaved") {
        const int most = std::min(v * M, 2 * (P - stage - 1) + (v - 1) * P + 1);
        ASSERT_LE(peak, most);
        if (M % P == 0) {
          ASSERT_EQ(peak, most);
        }
      } else {
        ASSERT_LE(peak, std::min(2 * M, 2 * P));
        if (M >= 2 * P) {
          ASSERT_EQ(peak, 2 * P);
        }
      }
    }
  });
}

TEST(PipelineSchedule, MessagesStandBesideTheStepsThatMakeAndNeedThem) {
  const auto one = plan_pipeline({"1f1b", 3, 1, 2});
  EXPECT_EQ(everything(one, 0), "F0 SF0 F1 SF1 RB0 B0 RB1 B1 ");
  EXPECT_EQ(everything(one, 1), "RF0 F0 SF0 RF1 F1 SF1 RB0 B0 SB0 RB1 B1 SB1 ");
  EXPECT_EQ(everything(one, 2), "RF0 F0 B0 SB0 RF1 F1 B1 SB1 ");
  // The turn of the V, from stage 1 to itself, is no message.
  EXPECT_EQ(everything(plan_pipeline({"zero-bubble-v", 2, 2, 1}), 1),
            "RF0.0 F0.0 F0.1 SF0.1 RB0.1 B0.1 W0.1 B0.0 SB0.0 W0.0 ");
  // From the last stage of a chunk to the first of the next.
  EXPECT_EQ(everything(plan_pipeline({"interleaved", 2, 2, 1}), 0),
            "F0.0 SF0.0 RF0.1 F0.1 SF0.1 RB0.1 B0.1 SB0.1 RB0.0 B0.0 ");
}

TEST(PipelineSchedule, AMessageThatAnotherWouldOvertakeIsReceivedFirst) {
  PipelineSchedule schedule;
  schedule.stages = 2;
  schedule.micro_batches = 2;
  constexpr auto F = PipelineOp::forward;
  constexpr auto B = PipelineOp::backward;
  schedule.steps = {{{F, 0, 0}, {F, 0, 1}, {B, 0, 0}, {B, 0, 1}},
                    {{F, 0, 1}, {F, 0, 0}, {B, 0, 0}, {B, 0, 1}}};
  EXPECT_EQ(everything(with_communication(schedule), 1), "RF0 RF1 F1 F0 B0 SB0 B1 SB1 ");
}

void expect_refused(const PipelineOptions& options, const std::string& message) {
  try {
    plan_pipeline(options);
    FAIL() << "accepted: " << message;
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), message.c_str());
  }
}

TEST(PipelineSchedule, RefusesWhatItCannotPlanAndOffersWhatFits) {
  expect_refused({"1f1", 2, 1, 4},
                 "there is no pipeline schedule \"1f1\".\n  Did you mean 1f1b?\n  Use gpipe, 1f1b, "
                 "interleaved, zero-bubble or zero-bubble-v.");
  expect_refused({"1f1b", 0, 1, 4},
                 "a pipeline of 0 stages: it has at least 1.\n  One stage is no pipeline.");
  expect_refused({"1f1b", 2, 1, -1}, "a pipeline of -1 micro-batches: their number is 0 or more.");
  expect_refused({"1f1b", 2, 2, 4},
                 "the schedule 1f1b cuts a stage into 1 chunk, not 2.\n  Use 1 chunk, or the "
                 "schedule interleaved.");
  expect_refused({"interleaved", 2, 1, 4},
                 "the schedule interleaved cuts a stage into at least 2 chunks, not 1.\n  Use 2 "
                 "chunks.");
  expect_refused({"zero-bubble-v", 2, 3, 4},
                 "the schedule zero-bubble-v cuts a stage into 2 chunks, not 3.\n  Use 2 chunks.");
}

}  // namespace
}  // namespace lockstep::plan
