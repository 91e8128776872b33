#include "lockstep/optim/lamb.h"

#include <utility>

#include "lockstep/kernels/norm.h"
#include "lockstep/optim/detail/blocks.h"
#include "lockstep/optim/detail/require.h"

namespace lockstep::optim {

Lamb::Lamb(const LambOptions& options, std::vector<Span> spans)
    : TrustUpdater("LAMB", std::move(spans)), options_(options), moments_(2, spans_) {
  detail::require_share(name_, "beta1", options_.beta1);
  detail::require_share(name_, "beta2", options_.beta2);
  detail::require_eps(name_, options_.eps);
  detail::require_decay(name_, options_.weight_decay);
}

kernels::LambScalars Lamb::scalars(const Span& span, int64_t step, double grad_scale) const {
  return kernels::lamb_scalars(step, options_.beta1, options_.beta2, options_.eps,
                               span.decay ? options_.weight_decay : 0, options_.bias_correction,
                               grad_scale);
}

void Lamb::measure(double grad_scale, const std::vector<ChunkSums>& sums) {
  begin_measure(grad_scale, sums);
  for (size_t i = 0; i < spans_.size(); ++i) {
    const Span& span = spans_[i];
    const kernels::LambScalars s = scalars(span, steps_taken_ + 1, grad_scale);
    float* const first = moments_.of(0, i);
    float* const second = moments_.of(1, i);
    detail::for_each_block(span.count, [&](int64_t lo, int64_t size, int64_t chunk) {
      kernels::lamb_moments(first + lo, second + lo, span.gradient + lo, size, s);
      if (sums[i].weights == nullptr) return;
      const float* const master = span.master + lo;
      float direction[detail::kBlock];
      kernels::lamb_direction(direction, master, first + lo, second + lo, size, s);
      kernels::chunk_square_sums(direction, size, sums[i].updates + chunk);
      kernels::chunk_square_sums(master, size, sums[i].weights + chunk);
    });
  }
}

void Lamb::step(double lr, double grad_scale) {
  const std::vector<TrustNorms> norms = begin_step(lr, grad_scale);
  for (size_t i = 0; i < spans_.size(); ++i) {
    const Span& span = spans_[i];
    const auto [weight, update] = norms[i];
    const double ratio = weight > 0 && update > 0 ? weight / update : 1;
    kernels::lamb_apply(span.master, moments_.of(0, i), moments_.of(1, i), span.count,
                        scalars(span, steps_taken_, grad_scale),
                        static_cast<float>(lr * span.lr_factor * ratio));
  }
}

}  // namespace lockstep::optim
