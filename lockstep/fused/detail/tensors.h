/// What the fused functions ask of their tensors.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::fused::detail {

/// `x` in one piece. Throws UsageError, naming `function`: `x` is not float32.
at::Tensor floats(const char* function, const at::Tensor& x);

/// Throws UsageError, naming `function`: a parameter that is there is not contiguous float32 of
/// shape [width].
void check_vector(const char* function, const at::Tensor& parameter, int64_t width);

inline const float* data(const at::Tensor& x) { return x.data_ptr<float>(); }
/// Null for a tensor that is not there.
inline const float* data_or_null(const at::Tensor& x) {
  return x.defined() ? x.data_ptr<float>() : nullptr;
}
inline float* data_to_fill(const at::Tensor& x) {
  return x.defined() ? x.data_ptr<float>() : nullptr;
}

/// Rows of the last direction.
inline int64_t rows_of(const at::Tensor& x) { return x.size(-1) == 0 ? 0 : x.numel() / x.size(-1); }

}  // namespace lockstep::fused::detail
