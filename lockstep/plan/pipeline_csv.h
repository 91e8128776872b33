/// Pipeline schedules as tables: one's own in, any out.
///
///   F0,F1,,B0,B1          a row a stage, from the first; a cell a step; empty cells are skipped
///   F0,B0,F1,B1           F forward, B backward, W weight, then the micro-batch
///
/// Several chunks: F0.1 is micro-batch 0 on chunk 1. A first row "placement,v" places virtual
/// stages there and back. Messages are added (with_communication), unless the table has any of its
/// own: SF0 RF0 SB0 RB0, send and receive of a forward's or a backward's result.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/plan/pipeline_schedule.h"

namespace lockstep::plan {

/// Stages, chunks and micro-batches are as many as the table speaks of; a W anywhere splits
/// weights. Whether it can be carried out is check_pipeline's to say. Throws UsageError naming row,
/// column and what was expected there.
PipelineSchedule parse_pipeline_csv(std::string_view text, const std::string& name);

/// What parse_pipeline_csv reads back to `schedule`, if it has any step. Messages are written only
/// where they are not those that would be added.
std::string pipeline_csv(const PipelineSchedule& schedule);

}  // namespace lockstep::plan
