#include "lockstep/kernels/embedding.h"

#include <algorithm>

#include "lockstep/kernels/detail/clones.h"
#include "lockstep/kernels/span.h"

namespace lockstep::kernels {
namespace {

LOCKSTEP_CLONES
void sum_of_rows(float* __restrict into, const float* __restrict a, const float* __restrict b,
                 int64_t width) {
  for (int64_t i = 0; i < width; ++i) into[i] = a[i] + b[i];
}

}  // namespace

void embedding(float* into, const int64_t* ids, int64_t tokens, const float* table,
               const float* positions, int64_t sequence, int64_t width) {
  for (int64_t token = 0; token < tokens; ++token) {
    const float* const row = table + ids[token] * width;
    if (positions == nullptr) {
      std::copy_n(row, width, into + token * width);
    } else {
      sum_of_rows(into + token * width, row, positions + token % sequence * width, width);
    }
  }
}

void embedding_backward(float* d_table, const int64_t* ids, int64_t tokens, const float* dx,
                        int64_t width) {
  for (int64_t token = 0; token < tokens; ++token) {
    add(d_table + ids[token] * width, dx + token * width, width);
  }
}

void positions_backward(float* d_positions, const float* dx, int64_t samples, int64_t sequence,
                        int64_t width) {
  const int64_t count = sequence * width;
  if (samples == 0) {
    std::fill_n(d_positions, count, 0.0f);
    return;
  }
  std::copy_n(dx, count, d_positions);
  for (int64_t sample = 1; sample < samples; ++sample) {
    add(d_positions, dx + sample * count, count);
  }
}

}  // namespace lockstep::kernels
