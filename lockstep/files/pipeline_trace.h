/// Pipeline steps as events of a trace: the same names and colours for what was planned and
/// measured.
#pragma once

#include <string>
#include <vector>

#include "lockstep/files/trace_file.h"
#include "lockstep/plan/pipeline_timing.h"

namespace lockstep::files {

/// "forward", "backward", "weight"; "communication" for sends and receives.
std::string trace_category(plan::PipelineOp op);

/// The computing of a simulated step; stage s is rank s.
std::vector<TraceEvent> planned_events(const plan::PipelineSchedule& schedule,
                                       const plan::PipelineTimes& times);

}  // namespace lockstep::files
