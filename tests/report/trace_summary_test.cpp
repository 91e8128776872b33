#include "lockstep/report/trace_summary.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/files/pipeline_trace.h"

namespace lockstep::report {
namespace {

using files::TraceEvent;

TEST(TraceSummary, HasTheBubbleOfTheSimulatedStep) {
  const auto schedule = plan::plan_pipeline({"zero-bubble", 4, 1, 8});
  const auto times = plan::simulate(schedule, plan::even_costs({2, 3, 1}, 1));
  const auto events = files::planned_events(schedule, times);
  const TraceSummary planned = summarize(events, /*planned=*/true);
  EXPECT_DOUBLE_EQ(planned.bubble, times.bubble());
  EXPECT_EQ(planned.steps, 1);
  ASSERT_EQ(planned.ranks.size(), 4u);
  for (const RankSummary& rank : planned.ranks) {
    EXPECT_DOUBLE_EQ(rank.compute_seconds, 8 * 6);
    // Equal stages wait alike, wherever in the step: the last one at its start.
    EXPECT_DOUBLE_EQ(rank.idle_share, times.bubble());
  }
  EXPECT_TRUE(summarize(events, /*planned=*/false).ranks.empty());
}

std::vector<TraceEvent> two_steps() {
  return {
      {0, "compute", "F0", "forward", 0, 2},    {0, "compute", "B0", "backward", 2, 2},
      {0, "compute", "u", "optimizer", 4, 100}, {0, "compute", "F0", "forward", 104, 1},
      {0, "compute", "W0", "weight", 107, 1},   {1, "compute", "F0", "forward", 2, 2},
      {1, "compute", "u", "optimizer", 4, 50},  {1, "compute", "v", "optimizer", 54, 50},
      {1, "compute", "F0", "forward", 104, 4},  {1, "io", "SF0", "communication", 104, 3},
  };
}

TEST(TraceSummary, TheOptimizerIsBetweenStepsAndNoBubble) {
  const TraceSummary summary = summarize(two_steps(), false);
  EXPECT_EQ(summary.steps, 2);
  // Step 0: 6 of 8 seconds; step 1: 6 of 8.
  EXPECT_DOUBLE_EQ(summary.bubble, 0.25);
  ASSERT_EQ(summary.ranks.size(), 2u);
  EXPECT_DOUBLE_EQ(summary.ranks[0].compute_seconds, 6);
  EXPECT_DOUBLE_EQ(summary.ranks[0].idle_share, 0.25);
  // 2 of 4 seconds, the wait for the first input, and 0 of 4: the mean of both ranks is the bubble.
  EXPECT_DOUBLE_EQ(summary.ranks[1].idle_share, 0.25);
  EXPECT_DOUBLE_EQ(summary.ranks[1].communication_seconds, 3);
}

TEST(TraceSummary, IsALineARank) {
  EXPECT_EQ(text_of(summarize(two_steps(), false)),
            "            computing  communication     idle\n"
            "rank 0       6.0000 s       0.0000 s   25.0 %\n"
            "rank 1       6.0000 s       3.0000 s   25.0 %\n"
            "bubble 25.0 % of all ranks' time, 2 steps\n");
}

TEST(TraceSummary, OrderInTheFileDoesNotMatter) {
  std::vector<TraceEvent> events = two_steps();
  const std::string text = text_of(summarize(events, false));
  std::stable_partition(events.begin(), events.end(),
                        [](const TraceEvent& event) { return event.category == "optimizer"; });
  EXPECT_EQ(text_of(summarize(events, false)), text);
}

}  // namespace
}  // namespace lockstep::report
