#include "lockstep/optim/sgd.h"

#include <utility>

#include "lockstep/kernels/momentum.h"
#include "lockstep/optim/detail/require.h"

namespace lockstep::optim {

Sgd::Sgd(const SgdOptions& options, std::vector<Span> spans)
    : options_(options), spans_(std::move(spans)), moments_(1, spans_) {
  detail::require_share("SGD", "momentum", options_.momentum);
  detail::require_decay("SGD", options_.weight_decay);
}

void Sgd::step(double lr, double grad_scale) {
  detail::require_rate("SGD", lr);
  detail::require_scale("SGD", grad_scale);
  ++steps_taken_;
  for (size_t i = 0; i < spans_.size(); ++i) {
    const Span& span = spans_[i];
    kernels::sgd(span.master, moments_.of(0, i), span.gradient, span.count,
                 {.momentum = static_cast<float>(options_.momentum),
                  .step_size = static_cast<float>(lr * span.lr_factor),
                  .decay = static_cast<float>(span.decay ? options_.weight_decay : 0),
                  .grad_scale = static_cast<float>(grad_scale)});
  }
}

}  // namespace lockstep::optim
