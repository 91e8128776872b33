#include "lockstep/models/detail/rotary.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

namespace lockstep::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor turned(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
  return at::cat({a * cos - b * sin, b * cos + a * sin}, -1);
}

struct Rotate final : torch::autograd::Function<Rotate> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& cos,
                            const at::Tensor& sin) {
    ctx->saved_data["cos"] = cos;
    ctx->saved_data["sin"] = sin;
    return turned(x, cos, sin);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const at::Tensor cos = ctx->saved_data["cos"].toTensor();
    const at::Tensor sin = ctx->saved_data["sin"].toTensor();
    return {turned(gradients[0], cos, sin.neg()), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

RotaryTable rotary_table(int64_t length, int64_t head, double theta) {
  const int64_t half = head / 2;
  RotaryTable table{at::empty({length, half}, at::kFloat), at::empty({length, half}, at::kFloat)};
  for (int64_t i = 0; i < half; ++i) {
    const double per_position =
        std::pow(theta, -2 * static_cast<double>(i) / static_cast<double>(head));
    for (int64_t p = 0; p < length; ++p) {
      const double angle = static_cast<double>(p) * per_position;
      table.cos.data_ptr<float>()[p * half + i] = static_cast<float>(std::cos(angle));
      table.sin.data_ptr<float>()[p * half + i] = static_cast<float>(std::sin(angle));
    }
  }
  return table;
}

at::Tensor rotate(const at::Tensor& x, const RotaryTable& table) {
  return Rotate::apply(x, table.cos, table.sin);
}

}  // namespace lockstep::models
