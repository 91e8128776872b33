#include "lockstep/files/pipeline_trace.h"

namespace lockstep::files {

std::string trace_category(plan::PipelineOp op) {
  switch (op) {
    case plan::PipelineOp::forward:
      return "forward";
    case plan::PipelineOp::backward:
      return "backward";
    case plan::PipelineOp::weight:
      return "weight";
    default:
      return "communication";
  }
}

std::vector<TraceEvent> planned_events(const plan::PipelineSchedule& schedule,
                                       const plan::PipelineTimes& times) {
  std::vector<TraceEvent> events;
  for (const plan::PipelineEvent& event : times.events) {
    if (!plan::is_compute(event.step.op)) continue;
    events.push_back({.rank = event.stage,
                      .lane = "compute",
                      .name = plan::text_of(event.step, schedule.chunks > 1),
                      .category = trace_category(event.step.op),
                      .start = event.start,
                      .seconds = event.end - event.start,
                      .planned = true});
  }
  return events;
}

}  // namespace lockstep::files
