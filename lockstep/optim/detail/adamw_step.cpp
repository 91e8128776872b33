#include "lockstep/optim/detail/adamw_step.h"

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"

namespace lockstep::optim::detail {
namespace {

// `holds` is false for a NaN too: every rule is written as a comparison that must be true.
void require(bool holds, const char* field, double value, const char* rule) {
  if (holds) return;
  throw UsageError(base::str("AdamW: ", field, " is ", base::exact(value), ", but must be ", rule));
}

}  // namespace

void check_options(const AdamWOptions& options) {
  require(options.beta1 >= 0 && options.beta1 < 1, "beta1", options.beta1, "in [0, 1)");
  require(options.beta2 >= 0 && options.beta2 < 1, "beta2", options.beta2, "in [0, 1)");
  // The kernel works in fp32: an eps that vanishes there would divide zero by zero.
  require(options.eps > 0 && std::isfinite(options.eps) && static_cast<float>(options.eps) > 0,
          "eps", options.eps, "above 0, also as a float");
  require(options.weight_decay >= 0 && std::isfinite(options.weight_decay), "weight_decay",
          options.weight_decay, "0 or more");
}

AdamWStep adamw_step(const AdamWOptions& options, int64_t t, double lr, double grad_scale) {
  require(lr >= 0 && std::isfinite(lr), "lr", lr, "0 or more");
  require(std::isfinite(grad_scale), "grad_scale", grad_scale, "finite");
  const auto scalars = [&](double weight_decay) {
    return kernels::adamw_scalars(t, lr, options.beta1, options.beta2, options.eps, weight_decay,
                                  grad_scale);
  };
  return {scalars(options.weight_decay), scalars(0)};
}

}  // namespace lockstep::optim::detail
