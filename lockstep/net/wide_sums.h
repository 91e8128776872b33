/// Sums that are rounded or divided only at their end: to fp32 and back.
#pragma once

#include <cstdint>

#include "lockstep/net/types.h"

namespace lockstep::net {

/// fp16 or bf16 as fp32, which is exact.
void widen(DType type, const void* from, float* to, int64_t count);

/// to = from / divisor, rounded to `type`, which is `wide` (f32 or f64), or fp16 or bf16 of f32.
/// `to` may be `from`.
void divide(DType wide, const void* from, int divisor, DType type, void* to, int64_t count);

}  // namespace lockstep::net
