#include "lockstep/models/dropout.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>

#include "lockstep/base/assert.h"
#include "lockstep/kernels/dropout_mask.h"

namespace lockstep::models {

at::Tensor dropout(const at::Tensor& x, int64_t samples, double p, const RankContext& context,
                   std::string_view layer, std::string_view purpose) {
  if (p == 0 || !context.training) return x;
  LOCKSTEP_ASSERT(p > 0 && p < 1, "make_model checks the probability");
  LOCKSTEP_ASSERT(x.is_contiguous() && samples > 0 && x.numel() % samples == 0,
                  "the samples lie one after the other");
  at::Tensor mask = at::empty(x.sizes(), x.options().requires_grad(false));
  const int64_t of_sample = x.numel() / samples;
  for (int64_t sample = 0; sample < samples; ++sample) {
    kernels::dropout_mask(mask.data_ptr<float>() + sample * of_sample, 0, of_sample,
                          context.sample_key(layer, purpose, sample), p);
  }
  return at::mul(x, mask);
}

}  // namespace lockstep::models
