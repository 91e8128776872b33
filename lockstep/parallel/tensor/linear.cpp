#include "lockstep/parallel/tensor/linear.h"

#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>

#include "lockstep/parallel/tensor/detail/kept.h"
#include "lockstep/parallel/tensor/detail/layer_inputs.h"

namespace lockstep::parallel {
namespace {

using detail::rows_of;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Layer {
  std::shared_ptr<WeightQueue> queue;
  at::Tensor weight;
  at::Tensor bias;
};

struct DeferredLinear final : torch::autograd::Function<DeferredLinear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Layer& layer) {
    ctx->save_for_backward({x});
    detail::keep(*ctx, layer);
    return at::linear(x, layer.weight, layer.bias);
  }

  // The calls that autograd makes for addmm and for matmul with a transposed weight.
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const Layer& layer = detail::kept<Layer>(*ctx);
    const at::Tensor x = ctx->get_saved_variables()[0];
    const at::Tensor dy_RN = rows_of(gradients[0]);
    if (layer.weight.requires_grad()) {
      layer.queue->entries.push_back(
          {layer.weight, [dy_RN, x_RK = rows_of(x)] { return at::mm(dy_RN.t(), x_RK); }});
    }
    if (layer.bias.defined() && layer.bias.requires_grad()) {
      layer.queue->entries.push_back({layer.bias, [dy_RN] { return dy_RN.sum(0); }});
    }
    return {at::mm(dy_RN, layer.weight).view(x.sizes()), at::Tensor()};
  }
};

}  // namespace

at::Tensor linear(const TensorGroup& group, const at::Tensor& x, const at::Tensor& weight,
                  const at::Tensor& bias) {
  if (!detail::defers(group, x)) return at::linear(x, weight, bias);
  return DeferredLinear::apply(x, Layer{group.weight_queue, weight, bias});
}

}  // namespace lockstep::parallel
