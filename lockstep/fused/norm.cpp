#include "lockstep/fused/norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/fused/detail/tensors.h"
#include "lockstep/kernels/norm_rows.h"
#include "lockstep/torch_inside/first_touch.h"
#include "lockstep/torch_inside/kept.h"
#include "lockstep/torch_inside/own_operator.h"

namespace lockstep::fused {
namespace {

using detail::data;
using detail::data_or_null;
using detail::data_to_fill;
using detail::rows_of;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// What there is beside an input and a gain.
struct Parts {
  bool centered = false;
  bool residual = false;
  bool shift = false;

  at::Tensor gain =
      {};  // kept as it is: a saved leaf would be one of the tensors that hooks offload

  // Places among the function's tensors.
  static constexpr size_t kX = 0, kGain = 1, kResidual = 2;
  size_t shift_place() const { return residual ? 3 : 2; }
};

struct Norm final : torch::autograd::Function<Norm> {
  /// {y}, or {x + residual, y}, of {x, gain} with a residual and a shift where there are.
  static variable_list forward(AutogradContext* ctx, at::TensorList tensors, Parts parts,
                               double eps) {
    torch_inside::OwnOperator record("lockstep::norm", {tensors[0], tensors[1], tensors.back()});
    ctx->set_materialize_grads(false);
    const at::Tensor &x = tensors[Parts::kX], &gain = tensors[Parts::kGain];
    const at::Tensor residual = parts.residual ? tensors[Parts::kResidual] : at::Tensor();
    const at::Tensor shift = parts.shift ? tensors[parts.shift_place()] : at::Tensor();
    torch_inside::touch_for_reading({gain, shift});
    const int64_t rows = rows_of(x);
    const at::Tensor sum = parts.residual ? at::empty_like(x) : x;
    const at::Tensor y = at::empty_like(x), rstd = at::empty({rows}, x.options());
    const at::Tensor mean = parts.centered ? at::empty_like(rstd) : at::Tensor();
    const kernels::NormForward norm{.x = data(x),
                                    .residual = data_or_null(residual),
                                    .gain = data(gain),
                                    .shift = data_or_null(shift),
                                    .sum = data_to_fill(sum),
                                    .y = data_to_fill(y),
                                    .mean = data_to_fill(mean),
                                    .rstd = data_to_fill(rstd),
                                    .rows = rows,
                                    .width = x.size(-1),
                                    .eps = eps};
    parts.centered ? kernels::layer_norm(norm) : kernels::rms_norm(norm);
    record.gives({parts.residual ? sum : at::Tensor(), y, mean, rstd});
    parts.gain = gain;
    torch_inside::keep(*ctx, parts);
    ctx->save_for_backward({sum, mean, rstd});
    return parts.residual ? variable_list{sum, y} : variable_list{y};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const Parts& parts = torch_inside::kept<Parts>(*ctx);
    const bool wants_x = ctx->needs_input_grad(Parts::kX);
    const bool wants_residual = parts.residual && ctx->needs_input_grad(Parts::kResidual);
    const bool wants_gain = ctx->needs_input_grad(Parts::kGain);
    const bool wants_shift = parts.shift && ctx->needs_input_grad(parts.shift_place());
    at::Tensor d_sum, d_gain, d_shift;
    if (parts.residual && gradients[0].defined()) d_sum = gradients[0].contiguous();
    at::Tensor ds = d_sum;
    if (gradients.back().defined()) {
      const variable_list saved = ctx->get_saved_variables();
      const at::Tensor &sum = saved[0], &mean = saved[1], &rstd = saved[2], &gain = parts.gain;
      const at::Tensor dy = gradients.back().contiguous();
      torch_inside::touch_for_reading({gain});
      ds = wants_x || wants_residual ? at::empty_like(sum) : at::Tensor();
      if (wants_gain || wants_shift) d_gain = at::empty(gain.sizes(), sum.options());
      if (wants_shift) d_shift = at::empty(gain.sizes(), sum.options());
      const kernels::NormBackward norm{.dy = data(dy),
                                       .s = data(sum),
                                       .mean = data_or_null(mean),
                                       .rstd = data(rstd),
                                       .gain = data(gain),
                                       .d_sum = data_or_null(d_sum),
                                       .ds = data_to_fill(ds),
                                       .d_gain = data_to_fill(d_gain),
                                       .d_shift = data_to_fill(d_shift),
                                       .rows = rows_of(sum),
                                       .width = sum.size(-1)};
      parts.centered ? kernels::layer_norm_backward(norm) : kernels::rms_norm_backward(norm);
    }
    variable_list result{wants_x ? ds : at::Tensor(), wants_gain ? d_gain : at::Tensor()};
    if (parts.residual) result.push_back(wants_residual ? ds : at::Tensor());
    if (parts.shift) result.push_back(d_shift);
    result.resize(result.size() + 2);  // the parts, eps
    return result;
  }
};

variable_list norm(const char* function, const at::Tensor& x, const at::Tensor& residual,
                   const at::Tensor& gain, const at::Tensor& shift, bool centered, double eps) {
  detail::check_vector(function, gain, x.size(-1));
  detail::check_vector(function, shift, x.size(-1));
  variable_list tensors{detail::floats(function, x), gain};
  if (residual.defined()) {
    if (residual.sizes() != x.sizes()) {
      throw UsageError(base::str(function, ": a residual of ", residual.numel(),
                                 " elements, an input of ", x.numel(), "."));
    }
    tensors.push_back(detail::floats(function, residual));
  }
  if (shift.defined()) tensors.push_back(shift);
  return Norm::apply(at::TensorList(tensors), Parts{centered, residual.defined(), shift.defined()},
                     eps);
}

}  // namespace

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& shift,
                      double eps) {
  return norm("layer_norm", x, {}, gain, shift, true, eps)[0];
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& gain, double eps) {
  return norm("rms_norm", x, {}, gain, {}, false, eps)[0];
}

std::pair<at::Tensor, at::Tensor> residual_layer_norm(const at::Tensor& x, const at::Tensor& r,
                                                      const at::Tensor& gain,
                                                      const at::Tensor& shift, double eps) {
  const variable_list both = norm("residual_layer_norm", x, r, gain, shift, true, eps);
  return {both[0], both[1]};
}

std::pair<at::Tensor, at::Tensor> residual_rms_norm(const at::Tensor& x, const at::Tensor& r,
                                                    const at::Tensor& gain, double eps) {
  const variable_list both = norm("residual_rms_norm", x, r, gain, {}, false, eps);
  return {both[0], both[1]};
}

}  // namespace lockstep::fused
