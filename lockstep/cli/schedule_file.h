/// A pipeline schedule of one's own, as a file.
#pragma once

#include <string>

#include "lockstep/plan/train_config.h"

namespace lockstep::cli {

/// The text of a table. Throws UsageError: it is not there, cannot be read, or is empty.
std::string read_schedule_table(const std::string& path);

/// A schedule that Lockstep does not know by name is a file: its text goes with the run. Throws
/// UsageError for a name that is neither, and as above.
void read_schedule(plan::TrainConfig& config);

}  // namespace lockstep::cli
