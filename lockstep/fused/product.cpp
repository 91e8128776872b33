#include "lockstep/fused/product.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include "lockstep/base/assert.h"
#include "lockstep/kernels/gemm.h"
#include "lockstep/kernels/rounding.h"
#include "lockstep/kernels/row_sums.h"
#include "lockstep/torch_inside/first_touch.h"
#include "lockstep/torch_inside/gemm_counter.h"
#include "lockstep/torch_inside/own_operator.h"

namespace lockstep::fused {
namespace {

using kernels::OperandType;
using plan::ComputeType;

/// left [m, k] or its transpose times right [k, n] or its transpose.
at::Tensor multiply(const char* name, const at::Tensor& left, bool transpose_left,
                    const at::Tensor& right, bool transpose_right, const at::Tensor& bias) {
  torch_inside::OwnOperator record(name, {left, right});
  torch_inside::touch_for_reading({right, bias});
  LOCKSTEP_ASSERT(left.is_contiguous() && right.is_contiguous(), "operands are made contiguous");
  const int64_t m = left.size(transpose_left ? 1 : 0), k = left.size(transpose_left ? 0 : 1);
  const kernels::Gemm product =
      kernels::packed_gemm(operand_type(left), m, right.size(transpose_right ? 0 : 1), k,
                           transpose_left, transpose_right);
  at::Tensor into = at::empty({product.m, product.n}, at::kFloat);
  kernels::gemm(product, left.data_ptr(), right.data_ptr(), into.data_ptr<float>(),
                bias.defined() ? bias.data_ptr<float>() : nullptr);
  torch_inside::add_gemm_flops(kernels::gemm_flops(product));
  record.gives({into});
  return into;
}

}  // namespace

Arithmetic arithmetic_of(const plan::TrainConfig& config) {
  return {.fused = config.numerics.kernels == "fused",
          .compute = plan::parse_compute_type(config.precision.compute)};
}

at::Tensor operand(const Arithmetic& arithmetic, const at::Tensor& x) {
  const at::Tensor from = x.contiguous();
  if (arithmetic.fused) torch_inside::touch_for_reading({from});
  switch (arithmetic.compute) {
    case ComputeType::fp32:
      return from;
    case ComputeType::bf16: {
      at::Tensor rounded = at::empty(from.sizes(), at::kBFloat16);
      kernels::to_bf16(static_cast<uint16_t*>(rounded.data_ptr()), from.data_ptr<float>(),
                       from.numel());
      return rounded;
    }
    case ComputeType::fp16: {
      at::Tensor rounded = at::empty(from.sizes(), at::kFloat);
      kernels::round_to_fp16(rounded.data_ptr<float>(), from.data_ptr<float>(), from.numel());
      return rounded;
    }
  }
  LOCKSTEP_ASSERT(false, "there are three compute types");
  return from;
}

at::Tensor row_operand(const Arithmetic& arithmetic, const at::Tensor& x) {
  return operand(arithmetic, x.detach().reshape({-1, x.size(-1)}));
}

kernels::OperandType operand_type(const at::Tensor& operand) {
  return operand.scalar_type() == at::kBFloat16 ? OperandType::bf16 : OperandType::fp32;
}

at::Tensor result(const Arithmetic& arithmetic, at::Tensor x) {
  if (arithmetic.compute != ComputeType::fp16) return x;
  LOCKSTEP_ASSERT(x.is_contiguous(), "a product's result is contiguous");
  kernels::round_to_fp16(x.data_ptr<float>(), x.data_ptr<float>(), x.numel());
  return x;
}

at::Tensor outputs(const Arithmetic& arithmetic, const at::Tensor& x_RK, const at::Tensor& w_NK,
                   const at::Tensor& bias) {
  if (!arithmetic.fused) {
    return bias.defined() ? at::addmm(bias, x_RK, w_NK.t()) : at::mm(x_RK, w_NK.t());
  }
  return result(arithmetic, multiply("lockstep::outputs", x_RK, false, w_NK, true, bias));
}

at::Tensor input_gradient(const Arithmetic& arithmetic, const at::Tensor& dy_RN,
                          const at::Tensor& w_NK) {
  if (!arithmetic.fused) return at::mm(dy_RN, w_NK);
  return result(arithmetic,
                multiply("lockstep::input_gradient", dy_RN, false, w_NK, false, at::Tensor()));
}

at::Tensor weight_gradient(const Arithmetic& arithmetic, const at::Tensor& dy_RN,
                           const at::Tensor& x_RK) {
  if (!arithmetic.fused) return at::mm(dy_RN.t(), x_RK);
  return result(arithmetic,
                multiply("lockstep::weight_gradient", dy_RN, true, x_RK, false, at::Tensor()));
}

at::Tensor bias_gradient(const Arithmetic& arithmetic, const at::Tensor& dy_RN) {
  if (!arithmetic.fused) return dy_RN.sum(0);
  at::Tensor sums = at::empty({dy_RN.size(1)}, at::kFloat);
  kernels::sum_rows(sums.data_ptr<float>(), dy_RN.data_ptr<float>(), dy_RN.size(0), dy_RN.size(1));
  return result(arithmetic, sums);
}

}  // namespace lockstep::fused
