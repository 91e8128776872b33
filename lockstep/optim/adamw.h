/// The AdamW updater: state for spans of a shard; knows no layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/optim/updater.h"

namespace lockstep::optim {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;  // on spans with `decay`
};

/// A run of elements with one decay rule: master weights and their gradient.
struct Span {
  float* master = nullptr;
  const float* gradient = nullptr;
  int64_t count = 0;
  bool decay = false;
};

class AdamW final : public Updater {
 public:
  /// Throws UsageError naming field and value: a beta outside [0, 1), eps <= 0, decay < 0, NaN.
  AdamW(const AdamWOptions& options, std::vector<Span> spans);

  /// Decay is decoupled: it shrinks the weight by lr * weight_decay and never reaches the moments.
  void step(double lr, double grad_scale) override;

  /// Of both moments.
  int64_t state_bytes() const override;
  /// The moments of a span, as many as its elements.
  const float* first_moment(std::size_t span) const {
    return first_moment_.data() + start_of(span);
  }
  const float* second_moment(std::size_t span) const {
    return second_moment_.data() + start_of(span);
  }

 private:
  int64_t start_of(std::size_t span) const {
    int64_t start = 0;
    for (std::size_t s = 0; s < span; ++s) start += spans_[s].count;
    return start;
  }

  AdamWOptions options_;
  std::vector<Span> spans_;
  std::vector<float> first_moment_;  // of all spans, back to back
  std::vector<float> second_moment_;
};

}  // namespace lockstep::optim
