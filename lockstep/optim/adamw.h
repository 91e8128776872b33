/// The AdamW updater: state for spans of a shard; knows no layout.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/kernels/adamw.h"

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

class AdamW {
 public:
  /// Throws UsageError naming field and value: a beta outside [0, 1), eps <= 0, decay < 0, NaN.
  AdamW(const AdamWOptions& options, std::vector<Span> spans);

  /// One step; `grad_scale` multiplies every gradient first. Decay is decoupled: it shrinks the
  /// weight by lr * weight_decay and never reaches the moments. Throws UsageError: `lr` negative or
  /// no number, `grad_scale` not finite; nothing was changed then.
  void step(double lr, double grad_scale);

  int64_t steps_taken() const { return steps_taken_; }
  /// Of both moments.
  int64_t state_bytes() const;

 private:
  AdamWOptions options_;
  std::vector<Span> spans_;
  std::vector<float> first_moment_;  // of all spans, back to back
  std::vector<float> second_moment_;
  int64_t steps_taken_ = 0;
};

}  // namespace lockstep::optim
