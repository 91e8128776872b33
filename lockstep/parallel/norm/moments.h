/// Count, mean and spread of each channel of a batch, and how those of parts make those of the
/// whole.
///
///   mean = sum n_i mean_i / sum n_i
///   m2   = sum m2_i + sum n_i (mean_i - mean)^2          m2: squared distances from the mean
///
/// Weighted by counts, so parts may be of any size, and empty ones say nothing.
/// Source  Chan, Golub and LeVeque 1979, STAN-CS-79-773;  docs/concepts/batch_norm.md
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep::parallel {

// Shapes: B samples, C channels, then any others.
struct Moments {
  int64_t count = 0;  // numbers of a channel
  at::Tensor mean;    // [C] float64
  at::Tensor m2;      // [C] float64

  /// As a batch is normalised by.
  at::Tensor variance() const;
  /// As running values keep it: m2 / (count - 1).
  at::Tensor unbiased_variance() const;
};

/// Of x [B, C, ...] float32, over all but the channels; of an empty one count is 0, the rest zeros.
Moments moments_of(const at::Tensor& x);

/// Of all parts together, added in the order of the list.
Moments joined(const std::vector<Moments>& parts);

}  // namespace lockstep::parallel
