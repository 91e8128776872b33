#include "lockstep/models/detail/grain_tokens.h"

#include <ATen/ops/cat.h>

#include <numeric>

namespace lockstep::models {

int64_t GrainTokens::position(int64_t index) const {
  const auto halves = plan::tokens_of(grain, grains, sequence);
  const int64_t half = count() / 2;
  return index < half ? halves[0].lo + index : halves[1].lo + index - half;
}

at::Tensor GrainTokens::of(const at::Tensor& x, int64_t dim) const {
  const auto halves = plan::tokens_of(grain, grains, sequence);
  return at::cat(
      {x.narrow(dim, halves[0].lo, count() / 2), x.narrow(dim, halves[1].lo, count() / 2)}, dim);
}

RotaryTable GrainTokens::of(const RotaryTable& table) const {
  return {of(table.cos, 0), of(table.sin, 0)};
}

std::vector<parallel::Run> GrainTokens::runs(plan::LeafRange held, int tensor_grains,
                                             int64_t samples, int64_t width) const {
  const int64_t slice = count() / tensor_grains;
  const int64_t unit = std::gcd(slice, count() / 2);  // no piece crosses from half to half
  std::vector<parallel::Run> runs;
  for (int64_t t = held.lo; t < held.hi; ++t) {
    for (int64_t sample = 0; sample < samples; ++sample) {
      for (int64_t token = t * slice; token < (t + 1) * slice; token += unit) {
        runs.push_back({sample, position(token) * width});
      }
    }
  }
  return runs;
}

}  // namespace lockstep::models
