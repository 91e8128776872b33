/// The layout that a run's settings ask for: who computes which leaves, and who owns what.
#pragma once

#include "lockstep/plan/batch_plan.h"
#include "lockstep/plan/shard_layout.h"
#include "lockstep/plan/step_program.h"
#include "lockstep/plan/train_config.h"

namespace lockstep::plan {

BatchPlan batch_of(const TrainConfig& config);

/// For `ranks` data-parallel ranks.
ShardOptions shard_options_of(const TrainConfig& config, int ranks);

/// Runs of leaves where they are folded locally, in turn where each round is reduced.
LeafSchedule leaves_of(const TrainConfig& config, int ranks);

/// All that the step of a model with these parameters is planned from, on one host over shared
/// memory by direct sums.
StepInputs step_inputs_of(const TrainConfig& config, const ParamTable& table, int ranks);

}  // namespace lockstep::plan
