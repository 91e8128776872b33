#include "lockstep/parallel/tensor/column_linear.h"

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
  std::vector<at::Tensor> biases;
  bool gather_again = false;
  bool deferred = false;
};

struct ColumnLinear final : torch::autograd::Function<ColumnLinear> {
  // `weights` and `biases` are the layer's, or empty where they are deferred.
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x,
                               const at::TensorList& /*weights*/, const at::TensorList& /*biases*/,
                               const Layer& layer) {
    const at::Tensor whole = whole_of(layer.group, x.contiguous()).wait();
    const fused::Arithmetic& arithmetic = layer.group.arithmetic;
    const at::Tensor rows = fused::row_operand(arithmetic, whole);
    variable_list outputs;
    for (size_t i = 0; i < layer.weights.size(); ++i) {
      const at::Tensor y =
          fused::outputs(arithmetic, rows, fused::operand(arithmetic, layer.weights[i]),
                         layer.biases.empty() ? at::Tensor() : layer.biases[i]);
      outputs.push_back(y.view(detail::with_last(whole, y.size(1))));
    }
    ctx->save_for_backward({layer.gather_again ? x : rows});
    torch_inside::keep(*ctx, layer);
    return outputs;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const Layer& layer = torch_inside::kept<Layer>(*ctx);
    const at::Tensor saved = ctx->get_saved_variables()[0];
    const fused::Arithmetic arithmetic = layer.group.arithmetic;
    const int first = layer.group.place.local.lo;
    std::vector<at::Tensor> dy, dy_operands;
    for (const at::Tensor& gradient : gradients) {
      dy.push_back(rows_of(gradient.contiguous()));
      dy_operands.push_back(fused::operand(arithmetic, dy.back()));
    }

    Pending x = layer.gather_again ? whole_of(layer.group, saved.contiguous()) : Pending(saved);
    std::optional<Pending> dx;
    if (ctx->needs_input_grad(0)) {
      std::vector<int64_t> shape = detail::with_last(gradients[0], layer.weights[0].size(1));
      const auto part = [&](int grain) {
        const auto i = static_cast<size_t>(grain - first);
        return fused::input_gradient(arithmetic, dy_operands[i],
                                     fused::operand(arithmetic, layer.weights[i]))
            .view(shape);
      };
      const bool skips = base::planted(base::Fault::skipped_backward_sum);
      dx = skips ? own_part(layer.group, part, /*joins=*/true) : join_grains(layer.group, part);
    }
    // dx travels while the weights' gradients are computed.
    const at::Tensor rows =
        layer.gather_again ? fused::operand(arithmetic, rows_of(x.wait())) : x.wait();
    variable_list dw, db;
    for (size_t i = 0; i < dy.size(); ++i) {
      const auto weight = [arithmetic, dy_RF = dy_operands[i], rows] {
        return fused::weight_gradient(arithmetic, dy_RF, rows);
      };
      const auto bias = [arithmetic, dy_RF = dy[i]] {
        return fused::bias_gradient(arithmetic, dy_RF);
      };
      if (layer.deferred) {
        std::vector<DeferredGradient>& queue = layer.group.weight_queue->entries;
        if (layer.weights[i].requires_grad()) queue.push_back({layer.weights[i], weight});
        if (!layer.biases.empty() && layer.biases[i].requires_grad()) {
          queue.push_back({layer.biases[i], bias});
        }
      } else {
        dw.push_back(layer.weights[i].requires_grad() ? weight() : at::Tensor());
        if (!layer.biases.empty()) {
          db.push_back(layer.biases[i].requires_grad() ? bias() : at::Tensor());
        }
      }
    }
    // The sum over grains is rounded once more, at the root.
    variable_list result{dx ? fused::result(arithmetic, dx->wait()) : at::Tensor()};
    result.insert(result.end(), dw.begin(), dw.end());
    result.insert(result.end(), db.begin(), db.end());
    result.emplace_back();  // the layer
    return result;
  }
};

}  // namespace

std::vector<at::Tensor> column_linear(const TensorGroup& group, const at::Tensor& x,
                                      const std::vector<at::Tensor>& weights,
                                      const std::vector<at::Tensor>& biases,
                                      const ColumnOptions& options) {
  const Layer layer{group, weights, biases, options.gather_again && group.place.sequence,
                    detail::defers(group, x)};
  if (layer.deferred) return ColumnLinear::apply(x, at::TensorList(), at::TensorList(), layer);
  return ColumnLinear::apply(x, at::TensorList(weights), at::TensorList(biases), layer);
}

}  // namespace lockstep::parallel
