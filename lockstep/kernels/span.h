/// Elementwise kernels over spans of floats: the adds of the fold stack. Compiled once per
/// instruction set (avx512, avx2, baseline), contraction off: all clones give equal bits.
#pragma once

#include <cstdint>

namespace lockstep::kernels {

/// into[i] += from[i]. The spans do not overlap.
void add(float* into, const float* from, int64_t count);

/// values[i] *= factor
void scale_in_place(float* values, int64_t count, float factor);

/// Row i of `width` elements, each times factors[i].
void scale_rows(float* values, const float* factors, int64_t rows, int64_t width);

/// True if every element is finite.
bool all_finite(const float* values, int64_t count);

}  // namespace lockstep::kernels
