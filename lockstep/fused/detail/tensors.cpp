#include "lockstep/fused/detail/tensors.h"

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::fused::detail {
namespace {

void check_float(const char* function, const at::Tensor& x) {
  if (x.scalar_type() == at::kFloat) return;
  throw UsageError(base::str(function, " computes in float32, and was given ",
                             c10::toString(x.scalar_type()),
                             ".\n  Convert with x.to(at::kFloat)."));
}

}  // namespace

at::Tensor floats(const char* function, const at::Tensor& x) {
  check_float(function, x);
  return x.contiguous();
}

void check_vector(const char* function, const at::Tensor& parameter, int64_t width) {
  if (!parameter.defined()) return;
  check_float(function, parameter);
  if (parameter.dim() != 1 || parameter.size(0) != width || !parameter.is_contiguous()) {
    throw UsageError(base::str(function, ": a parameter of ", parameter.numel(),
                               " elements for rows of ", width, "."));
  }
}

}  // namespace lockstep::fused::detail
