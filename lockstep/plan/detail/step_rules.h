/// Rules of what a run does with its steps beside the optimizer's: loss scale, steps that are left
/// out, the moving average, the ramp of the batch, the noise scale.
#pragma once

#include "lockstep/plan/train_config.h"

namespace lockstep::plan {

/// Throws UsageError with what fits.
void check_steps(const TrainConfig& config);

}  // namespace lockstep::plan
