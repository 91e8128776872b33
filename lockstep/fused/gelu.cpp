#include "lockstep/fused/gelu.h"

#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/fused/detail/tensors.h"
#include "lockstep/kernels/gelu.h"
#include "lockstep/torch_inside/own_operator.h"

namespace lockstep::fused {
namespace {

using detail::data;
using detail::data_to_fill;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Gelu final : torch::autograd::Function<Gelu> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x) {
    torch_inside::OwnOperator record("lockstep::gelu", {x});
    ctx->set_materialize_grads(false);
    ctx->save_for_backward({x});
    const at::Tensor y = at::empty_like(x);
    kernels::gelu(data_to_fill(y), data(x), x.numel());
    record.gives({y});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    if (!gradients[0].defined()) return {at::Tensor()};
    const at::Tensor x = ctx->get_saved_variables()[0];
    const at::Tensor dy = gradients[0].contiguous();
    const at::Tensor dx = at::empty_like(x);
    kernels::gelu_backward(data_to_fill(dx), data(dy), data(x), x.numel());
    return {dx};
  }
};

}  // namespace

at::Tensor gelu(const at::Tensor& x) { return Gelu::apply(detail::floats("gelu", x)); }

}  // namespace lockstep::fused
