/// LAMB: Adam whose step is, for each parameter, as long as a share of its norm.
///
///   direction = m' / (sqrt(v') + eps) + weight_decay * w     m', v': moments, bias corrected
///   w -= lr * |w| / |direction| * direction                  1 for the ratio where a norm is 0
///
/// Source  You et al. 2020, arXiv:1904.00962, algorithm 2, without a limit on the norm of w;
///         docs/concepts/optimizers.md
#pragma once

#include <vector>

#include "lockstep/kernels/lamb.h"
#include "lockstep/optim/detail/moments.h"
#include "lockstep/optim/trust_updater.h"

namespace lockstep::optim {

struct LambOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;  // on spans with `decay`
  bool bias_correction = true;
};

class Lamb final : public TrustUpdater {
 public:
  /// Throws UsageError naming field and value, as AdamW does.
  Lamb(const LambOptions& options, std::vector<Span> spans);

  void measure(double grad_scale, const std::vector<ChunkSums>& sums) override;
  void step(double lr, double grad_scale) override;

  int64_t state_bytes() const override { return moments_.bytes(); }
  const float* moment(int kind, size_t span) const override { return moments_.find(kind, span); }

 private:
  /// Of the optimizer's step number `step`, from 1.
  kernels::LambScalars scalars(const Span& span, int64_t step, double grad_scale) const;

  LambOptions options_;
  detail::Moments moments_;
};

}  // namespace lockstep::optim
