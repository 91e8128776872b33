#include "lockstep/optim/adamw.h"

#include <cmath>
#include <utility>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"

namespace lockstep::optim {
namespace {

// `holds` is false for a NaN too: every rule is written as a comparison that must be true.
void require(bool holds, const char* field, double value, const char* rule) {
  if (holds) return;
  throw UsageError(base::str("AdamW: ", field, " is ", base::exact(value), ", but must be ", rule));
}

}  // namespace

AdamW::AdamW(const AdamWOptions& options, std::vector<Span> spans)
    : options_(options), spans_(std::move(spans)) {
  require(options_.beta1 >= 0 && options_.beta1 < 1, "beta1", options_.beta1, "in [0, 1)");
  require(options_.beta2 >= 0 && options_.beta2 < 1, "beta2", options_.beta2, "in [0, 1)");
  // The kernel works in fp32: an eps that vanishes there would divide zero by zero.
  require(options_.eps > 0 && std::isfinite(options_.eps) && static_cast<float>(options_.eps) > 0,
          "eps", options_.eps, "above 0, also as a float");
  require(options_.weight_decay >= 0 && std::isfinite(options_.weight_decay), "weight_decay",
          options_.weight_decay, "0 or more");
  size_t count = 0;
  for (const Span& span : spans_) {
    LOCKSTEP_ASSERT(span.count >= 0, "a span has a length");
    count += static_cast<size_t>(span.count);
  }
  first_moment_.assign(count, 0.0f);
  second_moment_.assign(count, 0.0f);
}

void AdamW::step(double lr, double grad_scale) {
  require(lr >= 0 && std::isfinite(lr), "lr", lr, "0 or more");
  require(std::isfinite(grad_scale), "grad_scale", grad_scale, "finite");
  ++steps_taken_;
  const auto scalars = [&](double weight_decay) {
    return kernels::adamw_scalars(steps_taken_, lr, options_.beta1, options_.beta2, options_.eps,
                                  weight_decay, grad_scale);
  };
  const kernels::AdamWScalars with_decay = scalars(options_.weight_decay);
  const kernels::AdamWScalars without_decay = scalars(0);
  float* first = first_moment_.data();
  float* second = second_moment_.data();
  for (const Span& span : spans_) {
    kernels::adamw(span.master, first, second, span.gradient, span.count,
                   span.decay ? with_decay : without_decay);
    first += span.count;
    second += span.count;
  }
}

int64_t AdamW::state_bytes() const {
  return static_cast<int64_t>((first_moment_.size() + second_moment_.size()) * sizeof(float));
}

}  // namespace lockstep::optim
