/// Clipping by the global norm: the gradient keeps its direction, its norm is at most the limit.
/// Source  Pascanu, Mikolov and Bengio 2013, arXiv:1211.5063, algorithm 1
#pragma once

namespace lockstep::optim {

/// What every gradient is multiplied by: limit / norm above the limit, else 1. A limit of 0 is off.
constexpr double clip_scale(double norm, double limit) {
  return limit > 0 && norm > limit ? limit / norm : 1.0;
}

}  // namespace lockstep::optim
