#include "lockstep/parallel/norm/moments.h"

#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/zeros.h>

namespace lockstep::parallel {

at::Tensor Moments::variance() const { return m2 / static_cast<double>(count); }

at::Tensor Moments::unbiased_variance() const { return m2 / static_cast<double>(count - 1); }

Moments moments_of(const at::Tensor& x) {
  const int64_t channels = x.size(1);
  if (x.numel() == 0) {
    return {.count = 0,
            .mean = at::zeros({channels}, at::kDouble),
            .m2 = at::zeros({channels}, at::kDouble)};
  }
  const int64_t count = x.numel() / channels;
  const auto [mean, variance] = at::batch_norm_update_stats(x, {}, {}, /*momentum=*/0);
  return {.count = count,
          .mean = mean.to(at::kDouble),
          .m2 = variance.to(at::kDouble).mul_(static_cast<double>(count))};
}

Moments joined(const std::vector<Moments>& parts) {
  Moments whole{.count = 0,
                .mean = at::zeros_like(parts.front().mean),
                .m2 = at::zeros_like(parts.front().m2)};
  for (const Moments& part : parts) {
    whole.count += part.count;
    whole.mean.add_(part.mean, static_cast<double>(part.count));
  }
  if (whole.count == 0) return whole;
  whole.mean.div_(static_cast<double>(whole.count));
  for (const Moments& part : parts) {
    if (part.count == 0) continue;
    const at::Tensor apart = part.mean - whole.mean;
    whole.m2.add_(part.m2).addcmul_(apart, apart, static_cast<double>(part.count));
  }
  return whole;
}

}  // namespace lockstep::parallel
