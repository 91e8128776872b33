/// SGD with momentum: state for spans of a shard; knows no layout.
#pragma once

#include <vector>

#include "lockstep/optim/detail/moments.h"
#include "lockstep/optim/span.h"
#include "lockstep/optim/updater.h"

namespace lockstep::optim {

struct SgdOptions {
  double momentum = 0.9;
  double weight_decay = 0.1;  // on spans with `decay`; joins the gradient
};

class Sgd final : public Updater {
 public:
  /// Throws UsageError naming field and value: a momentum outside [0, 1), decay < 0, NaN.
  Sgd(const SgdOptions& options, std::vector<Span> spans);

  void step(double lr, double grad_scale) override;

  int64_t state_bytes() const override { return moments_.bytes(); }
  const float* moment(int kind, size_t span) const override { return moments_.find(kind, span); }

 private:
  SgdOptions options_;
  std::vector<Span> spans_;
  detail::Moments moments_;
};

}  // namespace lockstep::optim
