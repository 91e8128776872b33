/// Which checkpoint the ranks of a start go on from.
#pragma once

#include <functional>
#include <string>

#include "lockstep/plan/train_config.h"

namespace lockstep::worker {

/// The folder of the run's own newest checkpoint; where it has none, the one that run.resume names;
/// empty: from the beginning, as always with run.resume = never.
///
/// Rank 0 asks, at every start, and tells the others: hosts may see a folder at different moments.
/// With checkpoint.fall_back one that is damaged is passed over, and `say` told of it; that reads
/// it whole.
std::string resume_from(const std::string& run_folder, const plan::TrainConfig& config,
                        const std::function<void(const std::string&)>& say);

}  // namespace lockstep::worker
