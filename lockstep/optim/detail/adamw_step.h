/// What both forms of AdamW do alike: the rules for options and rates, and a step's scalars.
#pragma once

#include <cstdint>

#include "lockstep/kernels/adamw.h"
#include "lockstep/optim/adamw.h"

namespace lockstep::optim::detail {

/// Throws UsageError naming field and value.
void check_options(const AdamWOptions& options);

struct AdamWStep {
  kernels::AdamWScalars with_decay;
  kernels::AdamWScalars without_decay;
};

/// Of step `t`, from 1. Throws UsageError: a rate or scale that no step can have.
AdamWStep adamw_step(const AdamWOptions& options, int64_t t, double lr, double grad_scale);

}  // namespace lockstep::optim::detail
