/// Gradients of weights that a backward leaves for later: a zero-bubble schedule sends the gradient
/// of the input on first, and fills the time in which it would wait with those of the weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace lockstep {

struct DeferredGradient {
  at::Tensor weight;  // the leaf tensor
  std::function<at::Tensor()> compute;
};

/// What the backward at hand has left, in its order. Whoever called backward takes it.
struct WeightQueue {
  std::vector<DeferredGradient> entries;
};

}  // namespace lockstep
