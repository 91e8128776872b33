/// Rules of one part of a run's settings, whatever the layout. Each throws UsageError with what
/// fits.
#pragma once

#include "lockstep/plan/train_config.h"

namespace lockstep::plan {

/// What only some optimizers read is refused with the others.
void check_optimizer(const TrainConfig& config);

/// Settings that are read when the run begins: what is wrong with them is said before.
void check_texts(const TrainConfig& config);

void check_log(const TrainConfig& config);

}  // namespace lockstep::plan
