#include "lockstep/parallel/norm/channel_norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/group_norm.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <array>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/parallel/norm/sync_batch_norm.h"

namespace lockstep::parallel {
namespace {

constexpr std::array<const char*, 4> kNames = {"sync", "batch", "group", "layer"};

}  // namespace

NormKind norm_kind_of(const std::string& name) {
  for (size_t kind = 0; kind < kNames.size(); ++kind) {
    if (name == kNames[kind]) return static_cast<NormKind>(kind);
  }
  throw UsageError(base::str("there is no norm \"", name, "\": the kinds are sync, batch, group ",
                             "and layer."));
}

ChannelNorm::ChannelNorm(NormKind kind, int64_t channels, std::shared_ptr<NormShare> share)
    : kind_(kind), share_(std::move(share)) {
  if (kind == NormKind::group && channels % kGroup != 0) {
    throw UsageError(base::str("group normalisation takes ", kGroup, " channels together, which ",
                               "do not divide ", channels, ".\n  The nearest width that fits: ",
                               std::max<int64_t>(1, (channels + kGroup / 2) / kGroup) * kGroup));
  }
  weight = register_parameter("weight", at::empty({channels}));
  bias = register_parameter("bias", at::empty({channels}));
  if (kind != NormKind::sync && kind != NormKind::batch) return;
  running_mean = register_buffer("running_mean", at::zeros({channels}));
  running_var = register_buffer("running_var", at::ones({channels}));
  number_ = share_->running.add(running_mean, running_var);
}

at::Tensor ChannelNorm::over_batch(const at::Tensor& x, Moments* found) {
  const int64_t channels = x.size(1);
  found->count = x.numel() / channels;
  if (found->count < 2) {
    throw UsageError(
        "batch normalisation in training: a micro-batch of one number a channel has no "
        "variance.\n  This fits: --set data.micro_batch=2 or more, or --set model.norm=group");
  }
  // With momentum 1 the operator leaves here what it normalised by.
  const at::Tensor mean = at::zeros({channels});
  const at::Tensor unbiased = at::zeros({channels});
  at::Tensor y = std::get<0>(at::native_batch_norm(x, weight, bias, mean, unbiased,
                                                   /*training=*/true, /*momentum=*/1, share_->eps));
  found->mean = mean.to(at::kDouble);
  found->m2 = unbiased.to(at::kDouble).mul_(static_cast<double>(found->count - 1));
  return y;
}

at::Tensor ChannelNorm::forward(const at::Tensor& x, const RankContext& context) {
  if (kind_ == NormKind::group || kind_ == NormKind::layer) {
    const int64_t groups = kind_ == NormKind::layer ? 1 : x.size(1) / kGroup;
    return at::group_norm(x, groups, weight, bias, share_->eps);
  }
  if (!context.training) {
    return normalized(x, weight, bias, running_mean, running_var, share_->eps);
  }
  Moments found;
  at::Tensor y;
  if (kind_ == NormKind::batch) {
    y = over_batch(x, &found);
  } else {
    if (share_->group == nullptr) {
      throw UsageError(
          "a norm of kind sync has no ranks to be synchronous with.\n  Call "
          "synchronize_over(group) of the model before the first step.");
    }
    y = sync_batch_norm(x, weight, bias, share_->eps, share_->group, &found);
  }
  if (found.count > 0) share_->running.see(number_, context.leaf, context.micro, found);
  return y;
}

}  // namespace lockstep::parallel
