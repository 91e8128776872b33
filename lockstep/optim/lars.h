/// LARS: SGD with momentum whose rate is, for each parameter, a share of the ratio of its norm to
/// that of its gradient.
///
///   ratio = trust * |w| / (|g| + weight_decay * |w|),   1 where |w| or |g| is 0
///
/// Source  You et al. 2017, arXiv:1708.03888, algorithm 1;  docs/concepts/optimizers.md
#pragma once

#include <vector>

#include "lockstep/optim/detail/moments.h"
#include "lockstep/optim/trust_updater.h"

namespace lockstep::optim {

struct LarsOptions {
  double momentum = 0.9;
  double weight_decay = 0.1;  // on spans with `decay`; joins the gradient
  double trust = 0.001;
};

class Lars final : public TrustUpdater {
 public:
  /// Throws UsageError naming field and value: a momentum outside [0, 1), decay < 0, trust <= 0,
  /// NaN.
  Lars(const LarsOptions& options, std::vector<Span> spans);

  void measure(double grad_scale, const std::vector<ChunkSums>& sums) override;
  void step(double lr, double grad_scale) override;

  int64_t state_bytes() const override { return moments_.bytes(); }
  const float* moment(int kind, size_t span) const override { return moments_.find(kind, span); }

 private:
  LarsOptions options_;
  detail::Moments moments_;
};

}  // namespace lockstep::optim
