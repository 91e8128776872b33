#include "lockstep/plan/pipeline_csv.h"

#include "lockstep/base/error.h"
#include "lockstep/plan/pipeline_check.h"
#include "tests/plan/pipelines.h"

namespace lockstep::plan {
namespace {

std::string refusal(std::string_view text) {
  try {
    parse_pipeline_csv(text, "mine.csv");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(PipelineCsv, EveryScheduleComesBack) {
  for_each_pipeline([](const PipelineSchedule& schedule) {
    if (schedule.micro_batches == 0) return;
    ASSERT_EQ(parse_pipeline_csv(pipeline_csv(schedule), schedule.name), schedule);
  });
}

TEST(PipelineCsv, IsARowAStage) {
  EXPECT_EQ(pipeline_csv(plan_pipeline({"1f1b", 2, 1, 2})), "F0,F1,B0,B1\nF0,B0,F1,B1\n");
  EXPECT_EQ(pipeline_csv(plan_pipeline({"zero-bubble-v", 2, 2, 1})),
            "placement,v\nF0.0,F0.1,B0.1,W0.1,B0.0,W0.0\nF0.0,F0.1,B0.1,W0.1,B0.0,W0.0\n");
}

TEST(PipelineCsv, ReadsOnesOwn) {
  const auto mine = parse_pipeline_csv(" F0, F1 ,,B0,B1,\r\n\r\nF0,,B0,F1,B1,,\n\n", "1f1b");
  EXPECT_EQ(mine, plan_pipeline({"1f1b", 2, 1, 2}));
  const auto split = parse_pipeline_csv("F0,B0,W0", "mine.csv");
  EXPECT_TRUE(split.splits_weight);
  EXPECT_EQ(split.stages, 1);
  EXPECT_EQ(parse_pipeline_csv("placement,loop\nF0.1", "mine.csv").chunks, 2);
}

TEST(PipelineCsv, MessagesOfItsOwnAreTakenAsTheyStand) {
  const std::string early = "F0,SF0,F1,SF1,RB0,RB1,B0,B1\nRF0,RF1,F0,F1,B0,SB0,B1,SB1\n";
  const auto mine = parse_pipeline_csv(early, "mine.csv");
  EXPECT_EQ(mine.steps[1][1], (PipelineStep{PipelineOp::recv_forward, 0, 1}));
  EXPECT_NO_THROW(check_pipeline(mine, 2));
  EXPECT_EQ(pipeline_csv(mine), early);
  EXPECT_THROW(check_pipeline(parse_pipeline_csv("F0,SF0,B0\nF0,B0", "mine.csv"), 2), UsageError);
}

TEST(PipelineCsv, NamesRowAndColumn) {
  EXPECT_EQ(refusal("F0,B0\nF0,,X3"),
            "the pipeline schedule mine.csv: row 2, column 3: \"X3\" is no step.\n  Expected F, B "
            "or W, or SF, RF, SB or RB for messages, then the micro-batch and, of several, .chunk: "
            "F0, B3, W2.1");
  for (const char* cell :
       {"F", "F-1", "F1.", "F1.2.3", "1F0", "f0", "F0x", "F99999999999", "FB0"}) {
    EXPECT_NE(refusal(cell).find("row 1, column 1"), std::string::npos) << cell;
  }
  EXPECT_EQ(refusal("\n,,\n"),
            "the pipeline schedule mine.csv has no step.\n  Expected a row a stage: F0,F1,B0,B1");
  EXPECT_EQ(refusal("placement,w\nF0"),
            "the pipeline schedule mine.csv: row 1: the placement is v or loop, not \"w\".");
  EXPECT_EQ(refusal("placement\nF0"),
            "the pipeline schedule mine.csv: row 1: the placement is v or loop, not \"\".");
}

TEST(PipelineCsv, WhatCannotBeCarriedOutIsFoundByTheCheck) {
  const auto wrong = parse_pipeline_csv("F0,F1,B0,B1\nF0,B0", "mine.csv");
  EXPECT_THROW(check_pipeline(wrong, 2), UsageError);
  const auto twice = parse_pipeline_csv("F0,F0,B0\nF0,B0", "mine.csv");
  EXPECT_THROW(check_pipeline(twice, 2), UsageError);
}

}  // namespace
}  // namespace lockstep::plan
