/// The AdamW updater: state for spans of a shard; knows no layout.
#pragma once

#include <vector>

#include "lockstep/optim/detail/moments.h"
#include "lockstep/optim/span.h"
#include "lockstep/optim/updater.h"

namespace lockstep::optim {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;  // on spans with `decay`
};

class AdamW final : public Updater {
 public:
  /// Throws UsageError naming field and value: a beta outside [0, 1), eps <= 0, decay < 0, NaN.
  AdamW(const AdamWOptions& options, std::vector<Span> spans);

  /// Decay is decoupled: it shrinks the weight by lr * weight_decay and never reaches the moments.
  void step(double lr, double grad_scale) override;

  int64_t state_bytes() const override { return moments_.bytes(); }
  const float* moment(int kind, size_t span) const override { return moments_.find(kind, span); }

 private:
  AdamWOptions options_;
  std::vector<Span> spans_;
  detail::Moments moments_;
};

}  // namespace lockstep::optim
