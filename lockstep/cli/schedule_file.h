/// A pipeline schedule of one's own, as a file.
#pragma once

#include "lockstep/plan/train_config.h"

namespace lockstep::cli {

/// A schedule that Lockstep does not know by name is a file: its text goes with the run. Throws
/// UsageError for a name that is neither, EnvironmentError where the file is not there.
void read_schedule(plan::TrainConfig& config);

}  // namespace lockstep::cli
