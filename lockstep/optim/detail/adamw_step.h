/// What both forms of AdamW do alike: the rules for options and rates, and a step's scalars.
#pragma once

#include <cstdint>

#include "lockstep/kernels/adamw.h"
#include "lockstep/optim/adamw.h"

namespace lockstep::optim::detail {

/// Throws UsageError naming field and value.
void check_options(const AdamWOptions& options);

class AdamWStep {
 public:
  /// Of step `t`, from 1. Throws UsageError: a rate or scale that no step can have.
  AdamWStep(const AdamWOptions& options, int64_t t, double lr, double grad_scale);

  /// Of a span with this rule.
  kernels::AdamWScalars scalars(bool decay, double lr_factor) const {
    return kernels::adamw_scalars(t_, lr_ * lr_factor, options_.beta1, options_.beta2, options_.eps,
                                  decay ? options_.weight_decay : 0, grad_scale_);
  }

 private:
  const AdamWOptions& options_;
  int64_t t_;
  double lr_;
  double grad_scale_;
};

}  // namespace lockstep::optim::detail
