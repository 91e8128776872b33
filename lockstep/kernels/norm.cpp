#include "lockstep/kernels/norm.h"

#include <algorithm>

#include "lockstep/kernels/detail/clones.h"
#include "lockstep/plan/norm_chunks.h"

namespace lockstep::kernels {
namespace {

constexpr int64_t kLanes = 16;
static_assert(plan::kNormChunk % kLanes == 0);

// The square of a float is exact in fp64, so each lane rounds once an element.
LOCKSTEP_CLONES
void whole_chunks(const float* __restrict values, int64_t chunks, double* __restrict sums) {
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    double lane[kLanes] = {};
    for (int64_t row = 0; row < plan::kNormChunk; row += kLanes) {
      for (int64_t i = 0; i < kLanes; ++i) {
        const double value = values[row + i];
        lane[i] += value * value;
      }
    }
    for (int64_t i = 0; i < 8; ++i) lane[i] += lane[i + 8];
    for (int64_t i = 0; i < 4; ++i) lane[i] += lane[i + 4];
    sums[chunk] = (lane[0] + lane[2]) + (lane[1] + lane[3]);
    values += plan::kNormChunk;
  }
}

}  // namespace

void chunk_square_sums(const float* values, int64_t count, double* sums) {
  const int64_t chunks = count / plan::kNormChunk;
  whole_chunks(values, chunks, sums);
  const int64_t rest = count % plan::kNormChunk;
  if (rest == 0) return;
  // Lanes hold no negative numbers, so adding the square of zero changes no bit.
  float padded[plan::kNormChunk] = {};
  std::copy_n(values + chunks * plan::kNormChunk, rest, padded);
  whole_chunks(padded, 1, sums + chunks);
}

}  // namespace lockstep::kernels
