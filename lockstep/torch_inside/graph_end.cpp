#include "lockstep/torch_inside/graph_end.h"

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

namespace lockstep::torch_inside {

struct GraphEnd::Impl {
  torch::autograd::Edge edge;
};

GraphEnd::GraphEnd(const at::Tensor& result) : impl_(std::make_unique<Impl>()) {
  if (result.requires_grad()) impl_->edge = torch::autograd::impl::gradient_edge(result);
}

GraphEnd::~GraphEnd() = default;
GraphEnd::GraphEnd(GraphEnd&&) noexcept = default;
GraphEnd& GraphEnd::operator=(GraphEnd&&) noexcept = default;

void GraphEnd::backward(const at::Tensor& gradient) {
  if (!impl_->edge.is_valid()) return;
  torch::autograd::Engine::get_default_engine().execute({impl_->edge}, {gradient},
                                                        /*keep_graph=*/false,
                                                        /*create_graph=*/false,
                                                        /*accumulate_grad=*/true);
  impl_->edge = {};
}

}  // namespace lockstep::torch_inside
