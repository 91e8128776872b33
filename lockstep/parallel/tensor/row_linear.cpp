#include "lockstep/parallel/tensor/row_linear.h"

#include <algorithm>

#include "lockstep/base/planted_fault.h"
#include "lockstep/parallel/tensor/detail/layer_inputs.h"
#include "lockstep/torch_inside/kept.h"

namespace lockstep::parallel {
namespace {

using detail::rows_of;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Layer {
  TensorGroup group;
  std::vector<at::Tensor> weights;
  at::Tensor bias;  // undefined: none
  bool deferred = false;
};

/// The sum over tokens of dz [T, B, S/T, D], every slice here: the tree over slices.
at::Tensor bias_gradient_of_slices(const fused::Arithmetic& arithmetic, const at::Tensor& dz) {
  TensorGroup here;
  here.place.grains = static_cast<int>(dz.size(0));
  return sum_slices(here,
                    [&](int slice) {
                      return fused::bias_gradient(arithmetic, rows_of(dz.select(0, slice)));
                    })
      .wait();
}

struct RowLinear final : torch::autograd::Function<RowLinear> {
  // `weights` and `biases` are the layer's, or empty where they are deferred.
  static at::Tensor forward(AutogradContext* ctx, const at::TensorList& inputs,
                            const at::TensorList& /*weights*/, const at::TensorList& /*biases*/,
                            const Layer& layer) {
    const fused::Arithmetic& arithmetic = layer.group.arithmetic;
    const int first = layer.group.place.local.lo;
    variable_list h;  // rows, as products take them
    for (const at::Tensor& input : inputs) {
      h.push_back(fused::row_operand(arithmetic, input));
    }
    const auto part = [&](int grain) {
      const auto i = static_cast<size_t>(grain - first);
      const at::Tensor& w_DF = layer.weights[i];
      at::Tensor z = fused::outputs(arithmetic, h[i], fused::operand(arithmetic, w_DF), {})
                         .view(detail::with_last(inputs[i], w_DF.size(0)));
      const bool adds = base::planted(base::Fault::bias_on_each_rank) && first > 0 && i == 0;
      return adds && layer.bias.defined() ? z.add_(layer.bias) : z;
    };
    const bool skips = base::planted(base::Fault::skipped_forward_sum);
    const at::Tensor z =
        (skips ? own_part(layer.group, part, /*joins=*/true) : join_grains(layer.group, part))
            .wait();
    if (layer.bias.defined()) z.add_(layer.bias);
    fused::result(arithmetic, z);
    ctx->save_for_backward(h);
    torch_inside::keep(*ctx, layer);
    return z;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const Layer& layer = torch_inside::kept<Layer>(*ctx);
    const fused::Arithmetic arithmetic = layer.group.arithmetic;
    const variable_list h = ctx->get_saved_variables();
    const at::Tensor dz = whole_of(layer.group, gradients[0].contiguous()).wait();
    const at::Tensor rows = fused::operand(arithmetic, rows_of(dz));
    variable_list dh, dw, db;
    for (size_t i = 0; i < h.size(); ++i) {
      const at::Tensor& weights = layer.weights[i];
      dh.push_back(
          ctx->needs_input_grad(i)
              ? fused::input_gradient(arithmetic, rows, fused::operand(arithmetic, weights))
                    .view(detail::with_last(dz, weights.size(1)))
              : at::Tensor());
      const auto weight = [arithmetic, rows, h_RF = h[i]] {
        return fused::weight_gradient(arithmetic, rows, h_RF);
      };
      const bool wanted = layer.weights[i].requires_grad();
      if (!layer.deferred) {
        dw.push_back(wanted ? weight() : at::Tensor());
      } else if (wanted) {
        layer.group.weight_queue->entries.push_back({layer.weights[i], weight});
      }
    }
    if (layer.bias.defined()) {
      const plan::LeafRange own = layer.group.place.local;
      const bool local = base::planted(base::Fault::bias_of_local_tokens);
      const auto bias = [arithmetic, of = local ? dz.narrow(0, own.lo, own.size()) : dz] {
        return bias_gradient_of_slices(arithmetic, of);
      };
      const bool wanted = layer.bias.requires_grad();
      if (!layer.deferred) {
        db.push_back(wanted ? bias() : at::Tensor());
      } else if (wanted) {
        layer.group.weight_queue->entries.push_back({layer.bias, bias});
      }
    }
    variable_list result = std::move(dh);
    result.insert(result.end(), dw.begin(), dw.end());
    result.insert(result.end(), db.begin(), db.end());
    result.emplace_back();  // the layer
    return result;
  }
};

}  // namespace

at::Tensor row_linear(const TensorGroup& group, const std::vector<at::Tensor>& inputs,
                      const std::vector<at::Tensor>& weights, const at::Tensor& bias) {
  const bool all_have_gradients = std::all_of(
      inputs.begin(), inputs.end(), [&](const at::Tensor& h) { return detail::defers(group, h); });
  const Layer layer{group, weights, bias, all_have_gradients};
  if (layer.deferred) {
    return RowLinear::apply(at::TensorList(inputs), at::TensorList(), at::TensorList(), layer);
  }
  std::vector<at::Tensor> biases;
  if (bias.defined()) biases.push_back(bias);
  return RowLinear::apply(at::TensorList(inputs), at::TensorList(weights), at::TensorList(biases),
                          layer);
}

}  // namespace lockstep::parallel
