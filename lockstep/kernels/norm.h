/// Sums of squares in a fixed order: the leaves of gradient norms (plan/norm_chunks.h).
#pragma once

#include <cstdint>

namespace lockstep::kernels {

/// The sum of squares of each chunk of 256 elements (the last may be shorter), in fp64: 16 lanes,
/// lane i taking elements i, i + 16, ...; then the lane tree: lane i + lane i + 8, those i + 4,
/// those i + 2, those i + 1. `sums` has ceil(count / 256) places.
void chunk_square_sums(const float* values, int64_t count, double* sums);

}  // namespace lockstep::kernels
