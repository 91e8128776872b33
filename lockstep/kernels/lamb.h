/// LAMB in two passes: the moments first; then, when the norms of whole parameters are known, the
/// weights. The update's direction is not kept between them: it is computed again, by the same
/// function, to the same bits.
/// Source  You et al. 2020, "Large batch optimization for deep learning", ICLR, arXiv:1904.00962,
///         algorithm 2
#pragma once

#include <cstdint>

namespace lockstep::kernels {

/// What one step's kernels need, computed once from the step number in fp64 (`lamb_scalars`).
struct LambScalars {
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float first_scale;  // 1 / (1 - beta1^t); 1 without bias correction
  float root_scale;   // 1 / sqrt(1 - beta2^t); 1 the same
  float eps;
  float decay;       // joins the direction, and so its norm
  float grad_scale;  // multiplies each gradient first: the clip factor
};

/// `t` counts from 1. Powers are taken by squaring and the root is exact: alike on every machine.
LambScalars lamb_scalars(int64_t t, double beta1, double beta2, double eps, double weight_decay,
                         bool bias_correction, double grad_scale);

/// Per element, each operation rounded to fp32, in the order written:
///
///   g = gradient * grad_scale
///   m = beta1 * m + one_minus_beta1 * g
///   v = beta2 * v + one_minus_beta2 * g * g
///
/// Spans of this file do not overlap.
void lamb_moments(float* first_moment, float* second_moment, const float* gradient, int64_t count,
                  const LambScalars& scalars);

///   into = m * first_scale / (sqrt(v) * root_scale + eps) + decay * master
void lamb_direction(float* into, const float* master, const float* first_moment,
                    const float* second_moment, int64_t count, const LambScalars& scalars);

///   master = master - step_size * direction,   step_size: the rate times the trust ratio
void lamb_apply(float* master, const float* first_moment, const float* second_moment, int64_t count,
                const LambScalars& scalars, float step_size);

}  // namespace lockstep::kernels
