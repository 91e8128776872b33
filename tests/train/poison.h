/// A gradient that overflows on one rank, for one parameter of one leaf: what a step of 16 bits
/// does now and then.
#pragma once

#include <limits>
#include <memory>
#include <string>

#include "lockstep/train/trainer.h"

namespace lockstep::testing {

/// In the first step after `steps` were taken, an element of the gradient of the parameter that
/// begins with `name`, of leaf 1, becomes infinite before it joins any other.
inline void poison(Trainer& trainer, int64_t steps, const std::string& name) {
  ModelState& state = trainer.state();
  auto once = std::make_shared<bool>(false);
  state.grads().on_leaf([&state, steps, name, once](int param, int leaf, const float* values) {
    const std::string& of = state.params().table().params[static_cast<size_t>(param)].name;
    if (leaf != 1 || *once || !of.starts_with(name)) return;
    if (state.optimizer().steps_taken() != steps) return;
    *once = true;
    const_cast<float*>(values)[0] = std::numeric_limits<float>::infinity();
  });
}

}  // namespace lockstep::testing
