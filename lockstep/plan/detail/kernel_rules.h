/// Rules of who computes a decoder's layers (numerics.kernels), and in which type.
#pragma once

#include "lockstep/plan/train_config.h"

namespace lockstep::plan {

/// Of a decoder. Throws UsageError with what fits.
void check_kernels(const TrainConfig& config);

}  // namespace lockstep::plan
