#include "lockstep/optim/adamw.h"

#include <utility>

#include "lockstep/base/planted_fault.h"
#include "lockstep/optim/detail/adamw_step.h"

namespace lockstep::optim {

AdamW::AdamW(const AdamWOptions& options, std::vector<Span> spans)
    : options_(options), spans_(std::move(spans)), moments_(2, spans_) {
  detail::check_options(options_);
}

void AdamW::step(double lr, double grad_scale) {
  const detail::AdamWStep step(
      options_, steps_taken_ + (base::planted(base::Fault::wrong_step_count) ? 2 : 1), lr,
      grad_scale);
  ++steps_taken_;
  for (size_t i = 0; i < spans_.size(); ++i) {
    const Span& span = spans_[i];
    kernels::adamw(span.master, moments_.of(0, i), moments_.of(1, i), span.gradient, span.count,
                   step.scalars(span.decay, span.lr_factor));
  }
}

}  // namespace lockstep::optim
