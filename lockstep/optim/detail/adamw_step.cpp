#include "lockstep/optim/detail/adamw_step.h"

#include "lockstep/optim/detail/require.h"

namespace lockstep::optim::detail {

void check_options(const AdamWOptions& options) {
  require_share("AdamW", "beta1", options.beta1);
  require_share("AdamW", "beta2", options.beta2);
  require_eps("AdamW", options.eps);
  require_decay("AdamW", options.weight_decay);
}

AdamWStep::AdamWStep(const AdamWOptions& options, int64_t t, double lr, double grad_scale)
    : options_(options), t_(t), lr_(lr), grad_scale_(grad_scale) {
  require_rate("AdamW", lr);
  require_scale("AdamW", grad_scale);
}

}  // namespace lockstep::optim::detail
