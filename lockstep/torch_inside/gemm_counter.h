/// Counts the floating-point operations of matrix products where they run: forward and backward,
/// by the shapes that LibTorch's operators saw (2 m n k each).
#pragma once

#include <cstdint>

namespace lockstep::torch_inside {

/// Once per process; counting then costs a callback per matrix product.
void install_gemm_counter();

/// Of the calling thread, since it started.
int64_t gemm_flops_of_this_thread();

}  // namespace lockstep::torch_inside
