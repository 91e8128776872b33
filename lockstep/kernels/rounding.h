/// Rounding of fp32 to the types that matrix products take, to the nearest, ties to even.
#pragma once

#include <cstdint>

namespace lockstep::kernels {

/// into[i]: the upper half of the nearest bf16's float. Not a number stays not a number.
void to_bf16(uint16_t* into, const float* from, int64_t count);

/// into[i]: the nearest half-precision number, as a float: from 65520 on infinity, below 2^-24 in
/// steps of 2^-24, down to 0. `into` may be `from`.
void round_to_fp16(float* into, const float* from, int64_t count);

}  // namespace lockstep::kernels
