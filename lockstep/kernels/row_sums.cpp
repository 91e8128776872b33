#include "lockstep/kernels/row_sums.h"

#include <algorithm>

#include "lockstep/kernels/detail/clones.h"

namespace lockstep::kernels {

LOCKSTEP_CLONES void sum_rows(float* __restrict sums, const float* __restrict values, int64_t rows,
                              int64_t columns) {
  std::fill_n(sums, columns, 0.0F);
  int64_t row = 0;
  // Four rows for one look at the sums, added in their order.
  for (; row + 4 <= rows; row += 4) {
    const float* from = values + row * columns;
    for (int64_t c = 0; c < columns; ++c) {
      sums[c] = (((sums[c] + from[c]) + from[columns + c]) + from[2 * columns + c]) +
                from[3 * columns + c];
    }
  }
  for (; row < rows; ++row) {
    const float* from = values + row * columns;
    for (int64_t c = 0; c < columns; ++c) sums[c] += from[c];
  }
}

}  // namespace lockstep::kernels
