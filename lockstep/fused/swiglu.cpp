#include "lockstep/fused/swiglu.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/fused/detail/tensors.h"
#include "lockstep/kernels/swiglu.h"
#include "lockstep/torch_inside/own_operator.h"

namespace lockstep::fused {
namespace {

using detail::data;
using detail::data_to_fill;
using detail::rows_of;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Swiglu final : torch::autograd::Function<Swiglu> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate_up) {
    torch_inside::OwnOperator record("lockstep::swiglu", {gate_up});
    ctx->set_materialize_grads(false);
    ctx->save_for_backward({gate_up});
    std::vector<int64_t> shape = gate_up.sizes().vec();
    shape.back() /= 2;
    const at::Tensor y = at::empty(shape, gate_up.options());
    kernels::swiglu(data_to_fill(y), data(gate_up), rows_of(gate_up), shape.back());
    record.gives({y});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    if (!gradients[0].defined()) return {at::Tensor()};
    const at::Tensor gate_up = ctx->get_saved_variables()[0];
    const at::Tensor dy = gradients[0].contiguous();
    const at::Tensor d_gate_up = at::empty_like(gate_up);
    kernels::swiglu_backward(data_to_fill(d_gate_up), data(dy), data(gate_up), rows_of(gate_up),
                             gate_up.size(-1) / 2);
    return {d_gate_up};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate_up) {
  if (gate_up.size(-1) % 2 != 0) {
    throw UsageError(base::str("swiglu: rows of ", gate_up.size(-1),
                               " do not divide into a gate and an up half."));
  }
  return Swiglu::apply(detail::floats("swiglu", gate_up));
}

}  // namespace lockstep::fused
