/// Layer norm and RMS norm of rows, with the addition of a residual stream in the same pass.
///
///   s = x + r                                        without a residual s is x
///   layer norm   y = (s - mean) rstd gain + shift    rstd = 1 / sqrt(variance + eps)
///   RMS norm     y = s rstd gain                     rstd = 1 / sqrt(mean of s^2 + eps)
///
/// Order   a row's sums: 16 lanes, lane i takes elements i, i + 16, ..., then the lane tree (lane i
///         and lane i + 8, those and i + 4, i + 2, i + 1); in fp64 forward, in fp32 backward. A row
///         has the same results among any others. Gain and shift gradients sum over rows in fp32:
///         32 rows one after the other, then those sums one after the other
/// Source  Ba et al. 2016, arXiv:1607.06450; Zhang and Sennrich 2019, arXiv:1910.07467;
///         docs/concepts/kernels.md
#pragma once

#include <cstdint>

namespace lockstep::kernels {

/// Of `rows` rows of `width` floats each. Spans do not overlap; x and residual may be one.
struct NormForward {
  const float* x = nullptr;
  const float* residual = nullptr;  // null: none
  const float* gain = nullptr;      // [width]
  const float* shift = nullptr;     // [width]; null: none
  float* sum = nullptr;             // s; not written without a residual
  float* y = nullptr;
  float* mean = nullptr;  // [rows]; not written by RMS norm
  float* rstd = nullptr;  // [rows]
  int64_t rows = 0;
  int64_t width = 0;
  double eps = 0;
};

void layer_norm(const NormForward& norm);
void rms_norm(const NormForward& norm);

/// With u = (s - mean) rstd (RMS norm: s rstd), v = dy gain, averages over the row:
///
///   ds = rstd (v - average(v) - u average(v u)) + d_sum     RMS norm: without average(v)
///   d_gain = sum over rows of dy u,  d_shift = sum over rows of dy
struct NormBackward {
  const float* dy = nullptr;
  const float* s = nullptr;
  const float* mean = nullptr;  // of layer norm
  const float* rstd = nullptr;
  const float* gain = nullptr;
  const float* d_sum = nullptr;  // the gradient that comes by the stream itself; null: none
  float* ds = nullptr;           // null: not wanted
  float* d_gain = nullptr;       // null: not wanted, nor d_shift
  float* d_shift = nullptr;      // null: not wanted
  int64_t rows = 0;
  int64_t width = 0;
};

void layer_norm_backward(const NormBackward& norm);
void rms_norm_backward(const NormBackward& norm);

}  // namespace lockstep::kernels
