/// Pipeline schedules as pictures in text.
///
///   time     0  1  2  3  4  5  6  7  8
///   stage 0  F0 F1 .  .  B0 -- .  B1 --
///   stage 1  .  F0 B0 -- F1 B1 -- .  .
#pragma once

#include <string>

#include "lockstep/plan/pipeline_timing.h"

namespace lockstep::plan {

/// A row a stage, a column a unit of time; the columns of a step after its first are "--", waiting
/// is ".". Messages are not shown. `unit` is the seconds of a column: steps start and end at whole
/// columns, rounded where they do not.
std::string pipeline_grid(const PipelineSchedule& schedule, const PipelineTimes& times,
                          double unit);

/// The longest column that all three times of a stage cut into `chunks` are whole numbers of, to a
/// thousandth of a second; 0 where nothing takes time.
double grid_unit(const StageSeconds& seconds, int chunks, bool splits_weight);

}  // namespace lockstep::plan
