/// The tokens of a context grain (plan/context_place.h): two runs of the sequence, one behind the
/// other.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "lockstep/models/detail/rotary.h"
#include "lockstep/parallel/tensor/run_dropout.h"
#include "lockstep/plan/context_place.h"

namespace lockstep::models {

struct GrainTokens {
  int grain = 0;
  int grains = 1;
  int64_t sequence = 0;  // tokens of all grains

  int64_t count() const { return sequence / grains; }
  /// Where token `index` of the grain lies in the sequence.
  int64_t position(int64_t index) const;

  /// The grain's part of `x` along `dim`, which holds the sequence from its start: a copy.
  at::Tensor of(const at::Tensor& x, int64_t dim) const;
  RotaryTable of(const RotaryTable& table) const;

  /// The pieces of [T, B, count / T, D], or of the slices `held` of it, in the samples' whole
  /// [sequence, D].
  std::vector<parallel::Run> runs(plan::LeafRange held, int tensor_grains, int64_t samples,
                                  int64_t width) const;
};

}  // namespace lockstep::models
