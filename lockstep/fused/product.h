/// The matrix products of a linear layer, in the arithmetic of the run.
///
///   kernels   compute   products by        operands                results
///   aten      fp32      LibTorch           as they are             fp32
///   fused     fp32      oneDNN             as they are             fp32
///   fused     bf16      oneDNN             rounded to bf16         fp32
///   fused     fp16      oneDNN in fp32     rounded to fp16         rounded to fp16
///
/// Masters, their gradients, and what goes from layer to layer are fp32 tensors in all of them.
/// fp16 is emulated: each number that would be stored in half precision at the border of a layer is
/// rounded to it, with real underflow and overflow.
///
/// Order   of a product: a function of its shape, type and the instruction set (kernels/gemm.h)
/// Holds   nothing
/// Source  Micikevicius et al. 2018, "Mixed precision training", ICLR, arXiv:1710.03740; Kalamkar
///         et al. 2019, arXiv:1905.12322 (bf16);  docs/concepts/precision.md
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

#include "lockstep/kernels/gemm.h"
#include "lockstep/plan/compute_type.h"
#include "lockstep/plan/train_config.h"

namespace lockstep::fused {

using plan::Arithmetic;

/// As numerics.kernels and precision.compute say.
Arithmetic arithmetic_of(const plan::TrainConfig& config);

/// `x` as products take it: contiguous, in the compute type (fp16 as fp32 of the same values). A
/// layer keeps this for backward, so bf16 keeps half of the bytes.
at::Tensor operand(const Arithmetic& arithmetic, const at::Tensor& x);
/// The rows [rows, last] of any [..., last] as an operand that is outside of the graph: to be
/// saved. (A view of a tensor in the graph counts as a leaf of it, whose accumulator nobody keeps.)
at::Tensor row_operand(const Arithmetic& arithmetic, const at::Tensor& x);

/// What products take an operand for.
kernels::OperandType operand_type(const at::Tensor& operand);

/// `x` as a layer hands it on: rounded to fp16 where that is emulated, in place.
at::Tensor result(const Arithmetic& arithmetic, at::Tensor x);

// Shapes: R rows, K columns of the input, N of the output. All arguments but `bias` are operands.

/// x w^T + bias [R, N]; `bias` may be undefined.
at::Tensor outputs(const Arithmetic& arithmetic, const at::Tensor& x_RK, const at::Tensor& w_NK,
                   const at::Tensor& bias);
/// dy w [R, K]
at::Tensor input_gradient(const Arithmetic& arithmetic, const at::Tensor& dy_RN,
                          const at::Tensor& w_NK);
/// dy^T x [N, K]
at::Tensor weight_gradient(const Arithmetic& arithmetic, const at::Tensor& dy_RN,
                           const at::Tensor& x_RK);
/// Sum over rows of dy [N], dy in fp32.
at::Tensor bias_gradient(const Arithmetic& arithmetic, const at::Tensor& dy_RN);

/// What decides the bits of Lockstep's kernels, block sizes included: its name in a run's identity.
/// A change of what a kernel computes is another number.
inline constexpr std::string_view kKernelSet = "fused-1";

}  // namespace lockstep::fused
