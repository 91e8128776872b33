/// Counts the floating-point operations of matrix products where they run: forward and backward,
/// by the shapes that LibTorch's kernels saw (2 m n k each).
///
/// The kernels of mm, addmm, bmm and baddbmm are replaced by ones that add to a thread's number and
/// go on to LibTorch's: no other operator pays, and a product pays some nanoseconds.
#pragma once

#include <cstdint>

namespace lockstep::torch_inside {

/// Once per process, before other threads compute.
void install_gemm_counter();

/// Of the calling thread, since it started.
int64_t gemm_flops_of_this_thread();

/// A kernel of our own counts its products itself.
void add_gemm_flops(int64_t done);

}  // namespace lockstep::torch_inside
