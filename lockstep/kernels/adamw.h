/// AdamW in one pass over (master, gradient, moments).
/// Source  Loshchilov and Hutter 2019, "Decoupled weight decay regularization", ICLR
#pragma once

#include <cstdint>

namespace lockstep::kernels {

/// What one step's kernel needs, computed once from the step number in fp64 (`adamw_scalars`).
struct AdamWScalars {
  float keep;  // 1 - lr * weight_decay
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float step_size;   // lr / (1 - beta1^t)
  float root_scale;  // 1 / sqrt(1 - beta2^t)
  float eps;
  float grad_scale;  // multiplies each gradient first: the clip factor
};

/// `t` counts from 1. Powers are taken by squaring and the root is exact: alike on every machine.
AdamWScalars adamw_scalars(int64_t t, double lr, double beta1, double beta2, double eps,
                           double weight_decay, double grad_scale);

/// Per element, each operation rounded to fp32, in the order written (products before sums, from
/// the left):
///
///   g  = gradient * grad_scale
///   m  = beta1 * m + one_minus_beta1 * g
///   v  = beta2 * v + one_minus_beta2 * g * g
///   master = master * keep - step_size * m / (sqrt(v) * root_scale + eps)
///
/// The four spans do not overlap.
void adamw(float* master, float* first_moment, float* second_moment, const float* gradient,
           int64_t count, const AdamWScalars& scalars);

}  // namespace lockstep::kernels
