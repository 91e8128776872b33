/// What an updater works on.
#pragma once

#include <cstdint>

namespace lockstep::optim {

/// A run of elements with one rule: master weights and their gradient.
struct Span {
  float* master = nullptr;
  const float* gradient = nullptr;
  int64_t count = 0;
  bool decay = false;
  double lr_factor = 1;  // its rate as a multiple of the step's
};

}  // namespace lockstep::optim
