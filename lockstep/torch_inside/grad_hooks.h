/// Tells when autograd has put a gradient into a leaf tensor.
///
/// The callback runs in the thread that called backward, after AccumulateGrad, once per backward in
/// which the tensor took part (more often where a backward runs inside the backward). The object
/// keeps the accumulator nodes alive: tensors hold them weakly, and without it the hooks would
/// vanish. Once it is gone no callback runs, whoever still holds a graph.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace lockstep::torch_inside {

class GradHooks {
 public:
  GradHooks();
  ~GradHooks();
  void watch(const at::Tensor& leaf, std::function<void()> ready);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::torch_inside
