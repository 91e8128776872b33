/// What the settings of a residual network (models/resnet.h) must be to each other.
#pragma once

#include <cstdint>

#include "lockstep/plan/train_config.h"

namespace lockstep::plan {

/// Throws UsageError, naming all that is in the way and what fits: the network is neither cut into
/// stages nor divided, and settings of language models mean nothing to it.
void check_resnet(const TrainConfig& config);

/// Behind the rules of the batch: with norms over all ranks each has a micro-batch at any time.
void check_resnet_ranks(const TrainConfig& config, int ranks);

/// The reverse: model.norm and data.augment are refused with other families of Lockstep's.
void check_no_resnet(const TrainConfig& config);

/// Of grey pictures in ten classes; data of more have a larger head.
int64_t resnet_parameter_count(const TrainConfig& config);

}  // namespace lockstep::plan
