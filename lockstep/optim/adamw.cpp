#include "lockstep/optim/adamw.h"

#include "lockstep/base/planted_fault.h"

#include <cstddef>
#include <utility>

#include "lockstep/base/assert.h"
#include "lockstep/optim/detail/adamw_step.h"

namespace lockstep::optim {

AdamW::AdamW(const AdamWOptions& options, std::vector<Span> spans)
    : options_(options), spans_(std::move(spans)) {
  detail::check_options(options_);
  size_t count = 0;
  for (const Span& span : spans_) {
    LOCKSTEP_ASSERT(span.count >= 0, "a span has a length");
    count += static_cast<size_t>(span.count);
  }
  first_moment_.assign(count, 0.0f);
  second_moment_.assign(count, 0.0f);
}

void AdamW::step(double lr, double grad_scale) {
  const detail::AdamWStep scalars = detail::adamw_step(
      options_, steps_taken_ + (base::planted(base::Fault::wrong_step_count) ? 2 : 1), lr,
      grad_scale);
  ++steps_taken_;
  float* first = first_moment_.data();
  float* second = second_moment_.data();
  for (const Span& span : spans_) {
    kernels::adamw(span.master, first, second, span.gradient, span.count,
                   span.decay ? scalars.with_decay : scalars.without_decay);
    first += span.count;
    second += span.count;
  }
}

int64_t AdamW::state_bytes() const {
  return static_cast<int64_t>((first_moment_.size() + second_moment_.size()) * sizeof(float));
}

}  // namespace lockstep::optim
