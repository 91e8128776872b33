#include "lockstep/parallel/tensor/linear.h"

#include "lockstep/parallel/tensor/detail/layer_inputs.h"
#include "lockstep/torch_inside/kept.h"

namespace lockstep::parallel {
namespace {

using detail::rows_of;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Layer {
  TensorGroup group;
  at::Tensor weight;
  at::Tensor bias;  // undefined: none
  bool deferred = false;
};

struct Linear final : torch::autograd::Function<Linear> {
  // `parameters` are the layer's, or empty where they are deferred.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const at::TensorList& /*parameters*/, const Layer& layer) {
    const fused::Arithmetic& arithmetic = layer.group.arithmetic;
    const at::Tensor rows = fused::row_operand(arithmetic, x);
    ctx->save_for_backward({rows});
    torch_inside::keep(*ctx, layer);
    return fused::outputs(arithmetic, rows, fused::operand(arithmetic, layer.weight), layer.bias)
        .view(detail::with_last(x, layer.weight.size(0)));
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const Layer& layer = torch_inside::kept<Layer>(*ctx);
    const fused::Arithmetic arithmetic = layer.group.arithmetic;
    const at::Tensor x_RK = ctx->get_saved_variables()[0];
    const at::Tensor dy_RN = rows_of(gradients[0].contiguous());
    const at::Tensor dy = fused::operand(arithmetic, dy_RN);
    at::Tensor dx;
    if (ctx->needs_input_grad(0)) {
      dx = fused::input_gradient(arithmetic, dy, fused::operand(arithmetic, layer.weight))
               .view(detail::with_last(gradients[0], layer.weight.size(1)));
    }
    const bool biased = layer.bias.defined() && layer.bias.requires_grad();
    const auto weight = [arithmetic, dy, x_RK] {
      return fused::weight_gradient(arithmetic, dy, x_RK);
    };
    const auto bias = [arithmetic, dy_RN] { return fused::bias_gradient(arithmetic, dy_RN); };
    if (layer.deferred) {
      std::vector<DeferredGradient>& queue = layer.group.weight_queue->entries;
      if (layer.weight.requires_grad()) queue.push_back({layer.weight, weight});
      if (biased) queue.push_back({layer.bias, bias});
      return {dx, at::Tensor()};
    }
    variable_list result{dx, layer.weight.requires_grad() ? weight() : at::Tensor()};
    if (layer.bias.defined()) result.push_back(biased ? bias() : at::Tensor());
    result.emplace_back();  // the layer
    return result;
  }
};

}  // namespace

at::Tensor linear(const TensorGroup& group, const at::Tensor& x, const at::Tensor& weight,
                  const at::Tensor& bias) {
  const Layer layer{group, weight, bias, detail::defers(group, x)};
  if (layer.deferred) return Linear::apply(x, at::TensorList(), layer);
  std::vector<at::Tensor> parameters{weight};
  if (bias.defined()) parameters.push_back(bias);
  return Linear::apply(x, at::TensorList(parameters), layer);
}

}  // namespace lockstep::parallel
