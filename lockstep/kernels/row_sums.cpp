#include "lockstep/kernels/row_sums.h"

#include <algorithm>

#include "lockstep/kernels/detail/clones.h"

namespace lockstep::kernels {

LOCKSTEP_CLONES void sum_rows(float* __restrict sums, const float* __restrict values, int64_t rows,
                              int64_t columns) {
  std::fill_n(sums, columns, 0.0F);
  for (int64_t row = 0; row < rows; ++row) {
    const float* from = values + row * columns;
    for (int64_t c = 0; c < columns; ++c) sums[c] += from[c];
  }
}

}  // namespace lockstep::kernels
