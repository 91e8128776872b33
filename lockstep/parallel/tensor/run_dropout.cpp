#include "lockstep/parallel/tensor/run_dropout.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "lockstep/base/assert.h"
#include "lockstep/base/planted_fault.h"
#include "lockstep/kernels/dropout_mask.h"
#include "lockstep/torch_inside/kept.h"
#include "lockstep/torch_inside/own_operator.h"

namespace lockstep::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Where the factors of a tensor come from: of each piece a key, and the first count.
struct Draws {
  std::vector<std::pair<base::RandomKey, int64_t>> pieces;
  double p = 0;
};

/// The factors, times `x`.
at::Tensor times_factors(const at::Tensor& x, const Draws& draws) {
  at::Tensor y = at::empty(x.sizes(), x.options().requires_grad(false));
  const int64_t length = x.numel() / static_cast<int64_t>(draws.pieces.size());
  float* piece = y.data_ptr<float>();
  for (const auto& [key, first] : draws.pieces) {
    kernels::dropout_mask(piece, first, length, key, draws.p);
    piece += length;
  }
  return y.mul_(x);
}

struct Dropout final : torch::autograd::Function<Dropout> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Draws& draws) {
    torch_inside::OwnOperator record("lockstep::dropout", {x});
    torch_inside::keep(*ctx, draws);
    const at::Tensor y = times_factors(x, draws);
    record.gives({y});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const at::Tensor dy = gradients[0].contiguous();
    torch_inside::OwnOperator record("lockstep::dropout_backward", {dy});
    return {times_factors(dy, torch_inside::kept<Draws>(*ctx)), at::Tensor()};
  }
};

}  // namespace

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
  Draws draws{.pieces = {}, .p = p};
  for (const Run& run : runs) {
    draws.pieces.emplace_back(context.sample_key(layer, purpose, run.sample), run.first);
  }
  return Dropout::apply(x, draws);
}

}  // namespace lockstep::parallel
