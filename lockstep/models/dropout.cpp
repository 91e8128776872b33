#include "lockstep/models/dropout.h"

#include "lockstep/base/assert.h"
#include "lockstep/parallel/tensor/run_dropout.h"

namespace lockstep::models {

at::Tensor dropout(const at::Tensor& x, int64_t samples, double p, const RankContext& context,
                   std::string_view layer, std::string_view purpose) {
  if (p == 0 || !context.training) return x;
  LOCKSTEP_ASSERT(samples > 0 && x.numel() % samples == 0, "the samples lie one after the other");
  return parallel::run_dropout(x, parallel::token_runs({0, 1}, samples, x.numel() / samples), p,
                               context, layer, purpose);
}

}  // namespace lockstep::models
