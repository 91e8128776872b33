/// Layer norm and RMS norm of the last direction, alone or with the addition that stands before
/// them: a block's output joins the residual stream and is normed in one pass, and in backward the
/// stream's own gradient joins in one pass too.
///
///   layer norm   y = (x - mean) / sqrt(var + eps) * gain + shift
///   RMS norm     y = x / sqrt(mean of x^2 + eps) * gain
///
/// Holds   what is normed; of each row its mean (layer norm) and 1 / sqrt(..)
/// Order   a row has the same bits among any other rows; gain and shift gradients sum over the rows
///         of the call as kernels/norm_rows.h says
/// Source  kernels/norm_rows.h;  docs/concepts/kernels.md
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

namespace lockstep::fused {

/// x       [..., D] float32
/// gain    (D); shift (D) or undefined. Their memory may be released (torch_inside/first_touch.h)
/// throws  UsageError: another dtype, parameters of another size
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& shift,
                      double eps);
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& gain, double eps);

/// (x + r, the norm of it), with r of the shape of x.
std::pair<at::Tensor, at::Tensor> residual_layer_norm(const at::Tensor& x, const at::Tensor& r,
                                                      const at::Tensor& gain,
                                                      const at::Tensor& shift, double eps);
std::pair<at::Tensor, at::Tensor> residual_rms_norm(const at::Tensor& x, const at::Tensor& r,
                                                    const at::Tensor& gain, double eps);

}  // namespace lockstep::fused
