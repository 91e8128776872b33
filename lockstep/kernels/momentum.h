/// SGD with momentum, and LARS, in one pass over (master, gradient, moment).
/// Source  Sutskever et al. 2013, ICML, in the form of Goyal et al. 2017, arXiv:1706.02677,
///         equation 9; You et al. 2017, arXiv:1708.03888, algorithm 1
#pragma once

#include <cstdint>

namespace lockstep::kernels {

struct MomentumScalars {
  float momentum;
  float step_size;   // the rate; of LARS times the parameter's trust ratio
  float decay;       // joins the gradient: no decoupled decay here
  float grad_scale;  // multiplies each gradient first: the clip factor
};

/// Per element, each operation rounded to fp32, in the order written:
///
///   g = gradient * grad_scale + decay * master
///   m = momentum * m + g
///   master = master - step_size * m
///
/// The three spans do not overlap.
void sgd(float* master, float* moment, const float* gradient, int64_t count,
         const MomentumScalars& scalars);

/// The same with the step's size inside the moment, as ratios change from step to step:
///
///   m = momentum * m + step_size * g
///   master = master - m
void lars(float* master, float* moment, const float* gradient, int64_t count,
          const MomentumScalars& scalars);

/// into[i] = gradient[i] * grad_scale: what LARS takes the norm of.
void scale(float* into, const float* gradient, int64_t count, float grad_scale);

}  // namespace lockstep::kernels
