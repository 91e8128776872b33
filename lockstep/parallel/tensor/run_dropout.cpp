#include "lockstep/parallel/tensor/run_dropout.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>

#include "lockstep/base/assert.h"
#include "lockstep/base/planted_fault.h"
#include "lockstep/kernels/dropout_mask.h"

namespace lockstep::parallel {

std::vector<Run> token_runs(plan::LeafRange held, int64_t samples, int64_t elements) {
  std::vector<Run> runs;
  for (int64_t slice = held.lo; slice < held.hi; ++slice) {
    for (int64_t sample = 0; sample < samples; ++sample) runs.push_back({sample, slice * elements});
  }
  return runs;
}

std::vector<Run> head_runs(int grain, int64_t samples, int64_t elements) {
  std::vector<Run> runs;
  const int64_t first = base::planted(base::Fault::same_heads_everywhere) ? 0 : grain * elements;
  for (int64_t sample = 0; sample < samples; ++sample) runs.push_back({sample, first});
  return runs;
}

at::Tensor run_dropout(const at::Tensor& x, const std::vector<Run>& runs, double p,
                       const RankContext& context, std::string_view layer,
                       std::string_view purpose) {
  if (p == 0 || !context.training) return x;
  const auto pieces = static_cast<int64_t>(runs.size());
  LOCKSTEP_ASSERT(p > 0 && p < 1, "make_model checks the probability");
  LOCKSTEP_ASSERT(x.is_contiguous() && pieces > 0 && x.numel() % pieces == 0,
                  "the pieces lie one after the other");
  at::Tensor mask = at::empty(x.sizes(), x.options().requires_grad(false));
  const int64_t length = x.numel() / pieces;
  for (int64_t i = 0; i < pieces; ++i) {
    const Run& run = runs[static_cast<size_t>(i)];
    kernels::dropout_mask(mask.data_ptr<float>() + i * length, run.first, length,
                          context.sample_key(layer, purpose, run.sample), p);
  }
  return at::mul(x, mask);
}

}  // namespace lockstep::parallel
