/// Sums over the rows of a matrix: the gradients of biases.
#pragma once

#include <cstdint>

namespace lockstep::kernels {

/// sums[c] = rows[0][c] + rows[1][c] + ..., each added in order to those before it.
void sum_rows(float* sums, const float* values, int64_t rows, int64_t columns);

}  // namespace lockstep::kernels
