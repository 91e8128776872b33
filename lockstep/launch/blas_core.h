/// Which kernels OpenBLAS is told to use.
#pragma once

#include <string>

namespace lockstep::launch {

/// OpenBLAS picks its kernels by a table of processors. One that is newer than the library, or that
/// a virtual machine disguises, gets kernels without AVX: matrix products then run at a fifth of
/// their speed. The name of the kernels to ask for by OPENBLAS_CORETYPE in that case; empty where
/// its own choice is good, and where there is no OpenBLAS. Asked once a process.
const std::string& better_blas_core();

/// The rule behind it: `chosen` is what the library picked.
std::string better_blas_core(const std::string& chosen, bool avx2, bool avx512);

}  // namespace lockstep::launch
