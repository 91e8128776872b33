/// A moving average of weights, in one pass over (average, weights).
/// Source  Polyak and Juditsky 1992, SIAM J. Control Optim. 30(4); with a decay as in Izmailov et
///         al. 2018, arXiv:1803.05407, related work
#pragma once

#include <cstdint>

namespace lockstep::kernels {

/// Per element, each operation rounded to fp32, in the order written, decays from fp64:
///
///   average = decay * average + (1 - decay) * value
///
/// The spans do not overlap.
void moving_average(float* average, const float* values, int64_t count, double decay);

/// Exchanges the elements of two spans that do not overlap.
void swap_spans(float* a, float* b, int64_t count);

}  // namespace lockstep::kernels
