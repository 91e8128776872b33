#include "lockstep/parallel/tensor/slice_norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/stack.h>

#include "lockstep/kernels/norm_rows.h"
#include "lockstep/parallel/tensor/detail/layer_inputs.h"
#include "lockstep/torch_inside/first_touch.h"
#include "lockstep/torch_inside/kept.h"
#include "lockstep/torch_inside/own_operator.h"

namespace lockstep::parallel {
namespace {

using detail::rows_of;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Norm {
  TensorGroup group;
  at::Tensor gain;
  at::Tensor bias;  // undefined: none
  double eps = 0;
  bool rms = false;

  bool wants_parameters() const {
    return gain.requires_grad() || (bias.defined() && bias.requires_grad());
  }
  /// Slice `index` (of all) of this rank's x; with one grain x is one slice of any shape.
  at::Tensor slice(const at::Tensor& x, int index) const {
    return group.grains() == 1 ? x : x.select(0, index - group.slices().lo);
  }
};

/// Gain and bias gradients [1 or 2, D] go as one sum; they are taken apart here.
variable_list with_parameters(const at::Tensor& dx, const at::Tensor& sum, const Norm& norm) {
  variable_list result{dx, sum.defined() ? sum[0] : at::Tensor()};
  if (norm.bias.defined()) result.push_back(sum.defined() ? sum[1] : at::Tensor());
  result.emplace_back();  // the norm
  return result;
}

struct LayerNorm final : torch::autograd::Function<LayerNorm> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& gain,
                            const at::TensorList& /*bias*/, const Norm& norm) {
    auto [y, mean, rstd] = at::native_layer_norm(x, {x.size(-1)}, gain, norm.bias, norm.eps);
    ctx->save_for_backward({x, mean, rstd});
    torch_inside::keep(*ctx, norm);
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const Norm& norm = torch_inside::kept<Norm>(*ctx);
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor x = saved[0], mean = saved[1], rstd = saved[2];
    const at::Tensor dy = gradients[0].contiguous();
    const auto part = [&](const at::Tensor& dy_part, const at::Tensor& x_part,
                          const at::Tensor& mean_part, const at::Tensor& rstd_part,
                          std::array<bool, 3> wanted) {
      return at::native_layer_norm_backward(dy_part, x_part, {x.size(-1)}, mean_part, rstd_part,
                                            norm.gain, norm.bias, wanted);
    };
    std::optional<Pending> parameters;
    if (norm.wants_parameters()) {
      parameters = sum_slices(norm.group, [&](int i) {
        const auto [none, d_gain, d_bias] =
            part(norm.slice(dy, i), norm.slice(x, i), norm.slice(mean, i), norm.slice(rstd, i),
                 {false, true, norm.bias.defined()});
        return norm.bias.defined() ? at::stack({d_gain, d_bias}) : d_gain.unsqueeze(0);
      });
    }
    at::Tensor dx;
    if (ctx->needs_input_grad(0)) {
      dx = std::get<0>(part(dy, x, mean, rstd, {true, false, false}));
    }
    return with_parameters(dx, parameters ? parameters->wait() : at::Tensor(), norm);
  }
};

struct RmsNorm final : torch::autograd::Function<RmsNorm> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& gain,
                            const at::TensorList& /*bias*/, const Norm& norm) {
    const at::Tensor rstd = at::rsqrt(at::mul(x, x).mean(-1, /*keepdim=*/true).add_(norm.eps));
    ctx->save_for_backward({x, rstd});
    torch_inside::keep(*ctx, norm);
    return at::mul(x, rstd).mul_(gain);
  }

  // With u = x rstd and v = dy gain:  dx = rstd (v - u mean(v u)),  d_gain = sum of dy u.
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const Norm& norm = torch_inside::kept<Norm>(*ctx);
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor x = saved[0], rstd = saved[1];
    const at::Tensor dy = gradients[0].contiguous();
    const at::Tensor u = at::mul(x, rstd);
    std::optional<Pending> parameters;
    if (norm.wants_parameters()) {
      parameters = sum_slices(norm.group, [&](int i) {
        return rows_of(at::mul(norm.slice(dy, i), norm.slice(u, i))).sum(0, /*keepdim=*/true);
      });
    }
    at::Tensor dx;
    if (ctx->needs_input_grad(0)) {
      const at::Tensor v = at::mul(dy, norm.gain);
      const at::Tensor along = at::mul(v, u).mean(-1, /*keepdim=*/true);
      dx = (v - u * along).mul_(rstd);
    }
    return with_parameters(dx, parameters ? parameters->wait() : at::Tensor(), norm);
  }
};

/// Either norm by Lockstep's kernels. Rows are normed alike among any others; the parameters'
/// gradients are summed slice by slice.
struct FusedNorm final : torch::autograd::Function<FusedNorm> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& /*gain*/,
                            const at::TensorList& /*bias*/, const Norm& norm) {
    torch_inside::OwnOperator record("lockstep::slice_norm", {x, norm.gain});
    torch_inside::touch_for_reading({norm.gain, norm.bias});
    const int64_t rows = x.numel() / x.size(-1);
    const at::Tensor y = at::empty_like(x), rstd = at::empty({rows}, x.options());
    const at::Tensor mean = norm.rms ? at::Tensor() : at::empty_like(rstd);
    const kernels::NormForward of{.x = x.data_ptr<float>(),
                                  .gain = norm.gain.data_ptr<float>(),
                                  .shift = data(norm.bias),
                                  .y = data(y),
                                  .mean = data(mean),
                                  .rstd = data(rstd),
                                  .rows = rows,
                                  .width = x.size(-1),
                                  .eps = norm.eps};
    norm.rms ? kernels::rms_norm(of) : kernels::layer_norm(of);
    record.gives({y, mean, rstd});
    ctx->save_for_backward({x, mean, rstd});
    torch_inside::keep(*ctx, norm);
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const Norm& norm = torch_inside::kept<Norm>(*ctx);
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &mean = saved[1], &rstd = saved[2];
    const at::Tensor dy = gradients[0].contiguous();
    torch_inside::OwnOperator record("lockstep::slice_norm_backward", {dy, x});
    torch_inside::touch_for_reading({norm.gain});
    const int64_t width = x.size(-1), rows = rstd.numel();
    const auto run = [&](int64_t first, int64_t count, float* ds, float* d_gain, float* d_shift) {
      const kernels::NormBackward of{.dy = dy.data_ptr<float>() + first * width,
                                     .s = x.data_ptr<float>() + first * width,
                                     .mean = norm.rms ? nullptr : mean.data_ptr<float>() + first,
                                     .rstd = rstd.data_ptr<float>() + first,
                                     .gain = norm.gain.data_ptr<float>(),
                                     .ds = ds,
                                     .d_gain = d_gain,
                                     .d_shift = d_shift,
                                     .rows = count,
                                     .width = width};
      norm.rms ? kernels::rms_norm_backward(of) : kernels::layer_norm_backward(of);
    };
    std::optional<Pending> parameters;
    if (norm.wants_parameters()) {
      const int64_t of_slice = rows / norm.group.slices().size();
      parameters = sum_slices(norm.group, [&](int i) {
        const at::Tensor sums = at::empty({norm.bias.defined() ? 2 : 1, width}, x.options());
        run((i - norm.group.slices().lo) * of_slice, of_slice, nullptr, sums.data_ptr<float>(),
            norm.bias.defined() ? sums.data_ptr<float>() + width : nullptr);
        return sums;
      });
    }
    at::Tensor dx;
    if (ctx->needs_input_grad(0)) {
      dx = at::empty_like(x);
      run(0, rows, dx.data_ptr<float>(), nullptr, nullptr);
    }
    return with_parameters(dx, parameters ? parameters->wait() : at::Tensor(), norm);
  }

 private:
  /// Null for a tensor that is not there.
  static float* data(const at::Tensor& x) { return x.defined() ? x.data_ptr<float>() : nullptr; }
};

}  // namespace

at::Tensor layer_norm(const TensorGroup& group, const at::Tensor& x, const at::Tensor& gain,
                      const at::Tensor& bias, double eps) {
  std::vector<at::Tensor> biases;
  if (bias.defined()) biases.push_back(bias);
  const Norm norm{group, gain, bias, eps, /*rms=*/false};
  if (group.arithmetic.fused) {
    return FusedNorm::apply(x.contiguous(), gain, at::TensorList(biases), norm);
  }
  return LayerNorm::apply(x.contiguous(), gain, at::TensorList(biases), norm);
}

at::Tensor rms_norm(const TensorGroup& group, const at::Tensor& x, const at::Tensor& gain,
                    double eps) {
  const Norm norm{group, gain, {}, eps, /*rms=*/true};
  if (group.arithmetic.fused) {
    return FusedNorm::apply(x.contiguous(), gain, at::TensorList(), norm);
  }
  return RmsNorm::apply(x.contiguous(), gain, at::TensorList(), norm);
}

}  // namespace lockstep::parallel
