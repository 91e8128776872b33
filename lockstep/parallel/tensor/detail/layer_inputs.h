/// What the linear layers share: weights that are inputs of the graph, or deferred.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/parallel/tensor/grain_sum.h"

namespace lockstep::parallel::detail {

/// Whether weight gradients go to the queue. A layer whose input has no gradient is not called in
/// backward unless its weights are in the graph, so those stay.
inline bool defers(const TensorGroup& group, const at::Tensor& input) {
  return group.weight_queue != nullptr && input.requires_grad();
}

/// [rows, last] of any [..., last].
inline at::Tensor rows_of(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

/// `x`'s shape with another last size.
inline std::vector<int64_t> with_last(const at::Tensor& x, int64_t last) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = last;
  return shape;
}

}  // namespace lockstep::parallel::detail
