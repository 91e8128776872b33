/// Weight gradients that backward leaves for later, so that a pipeline stage can send the gradient
/// of its input first and fill its bubble with the rest.
///
/// Order   `compute` gives the bits that backward would have given, whenever it is called
/// Source  Qi et al. 2023, "Zero bubble pipeline parallelism", arXiv:2401.10241
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace lockstep {

/// Holds what `compute` needs (the layer's input and the gradient of its output) until it is
/// destroyed. No collective is made in it.
struct DeferredGradient {
  at::Tensor weight;  // the parameter itself
  std::function<at::Tensor()> compute;
};

/// In the order in which backward left them.
struct WeightQueue {
  std::vector<DeferredGradient> entries;
};

}  // namespace lockstep
