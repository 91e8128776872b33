#include "lockstep/kernels/average.h"

#include "lockstep/kernels/detail/clones.h"

namespace lockstep::kernels {
namespace {

LOCKSTEP_CLONES
void average_floats(float* __restrict average, const float* __restrict values, int64_t count,
                    float keep, float add) {
  for (int64_t i = 0; i < count; ++i) average[i] = keep * average[i] + add * values[i];
}

}  // namespace

void moving_average(float* average, const float* values, int64_t count, double decay) {
  average_floats(average, values, count, static_cast<float>(decay), static_cast<float>(1 - decay));
}

LOCKSTEP_CLONES
void swap_spans(float* __restrict a, float* __restrict b, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float kept = a[i];
    a[i] = b[i];
    b[i] = kept;
  }
}

}  // namespace lockstep::kernels
