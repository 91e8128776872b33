#include "lockstep/optim/lars.h"

#include <cmath>
#include <utility>

#include "lockstep/kernels/momentum.h"
#include "lockstep/kernels/norm.h"
#include "lockstep/optim/detail/blocks.h"
#include "lockstep/optim/detail/require.h"

namespace lockstep::optim {

Lars::Lars(const LarsOptions& options, std::vector<Span> spans)
    : TrustUpdater("LARS", std::move(spans)), options_(options), moments_(1, spans_) {
  detail::require_share(name_, "momentum", options_.momentum);
  detail::require_decay(name_, options_.weight_decay);
  detail::require(options_.trust > 0 && std::isfinite(options_.trust), name_, "trust",
                  options_.trust, "above 0");
}

void Lars::measure(double grad_scale, const std::vector<ChunkSums>& sums) {
  begin_measure(grad_scale, sums);
  const auto factor = static_cast<float>(grad_scale);
  for (size_t i = 0; i < spans_.size(); ++i) {
    const Span& span = spans_[i];
    if (sums[i].weights == nullptr) continue;
    kernels::chunk_square_sums(span.master, span.count, sums[i].weights);
    detail::for_each_block(span.count, [&](int64_t lo, int64_t size, int64_t chunk) {
      float scaled[detail::kBlock];
      kernels::scale(scaled, span.gradient + lo, size, factor);
      kernels::chunk_square_sums(scaled, size, sums[i].updates + chunk);
    });
  }
}

void Lars::step(double lr, double grad_scale) {
  const std::vector<TrustNorms> norms = begin_step(lr, grad_scale);
  for (size_t i = 0; i < spans_.size(); ++i) {
    const Span& span = spans_[i];
    const double decay = span.decay ? options_.weight_decay : 0;
    const auto [weight, gradient] = norms[i];
    const double ratio =
        weight > 0 && gradient > 0 ? options_.trust * weight / (gradient + decay * weight) : 1;
    kernels::lars(span.master, moments_.of(0, i), span.gradient, span.count,
                  {.momentum = static_cast<float>(options_.momentum),
                   .step_size = static_cast<float>(lr * span.lr_factor * ratio),
                   .decay = static_cast<float>(decay),
                   .grad_scale = static_cast<float>(grad_scale)});
  }
}

}  // namespace lockstep::optim
