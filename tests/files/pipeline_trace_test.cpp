#include "lockstep/files/pipeline_trace.h"

#include <gtest/gtest.h>

namespace lockstep::files {
namespace {

TEST(PipelineTrace, IsTheComputingOfTheSimulatedStep) {
  const auto schedule = plan::plan_pipeline({"zero-bubble", 2, 1, 1});
  const auto times = plan::simulate(schedule, plan::even_costs({1, 2, 3}, 1));
  EXPECT_EQ(planned_events(schedule, times),
            (std::vector<TraceEvent>{{0, "compute", "F0", "forward", 0, 1, true},
                                     {0, "compute", "B0", "backward", 4, 2, true},
                                     {0, "compute", "W0", "weight", 6, 3, true},
                                     {1, "compute", "F0", "forward", 1, 1, true},
                                     {1, "compute", "B0", "backward", 2, 2, true},
                                     {1, "compute", "W0", "weight", 4, 3, true}}));
  EXPECT_EQ(trace_category(plan::PipelineOp::recv_backward), "communication");
}

}  // namespace
}  // namespace lockstep::files
