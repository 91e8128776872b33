/// The end of a piece of an autograd graph, kept without the tensor that was computed there: a
/// stage that has sent its result on needs no bytes of it to go backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace lockstep::torch_inside {

class GraphEnd {
 public:
  /// `result` may be dropped afterwards; what the graph itself saved stays. A result that needs no
  /// gradient has an end from which nothing flows.
  explicit GraphEnd(const at::Tensor& result);
  ~GraphEnd();
  GraphEnd(GraphEnd&&) noexcept;
  GraphEnd& operator=(GraphEnd&&) noexcept;

  /// As result.backward(gradient): leaves accumulate. Once: the graph is freed.
  void backward(const at::Tensor& gradient);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::torch_inside
