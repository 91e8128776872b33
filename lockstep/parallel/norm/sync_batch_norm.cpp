#include "lockstep/parallel/norm/sync_batch_norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

struct Held : torch::CustomClassHolder {
  std::shared_ptr<ProcessGroup> group;
  double eps = 0;
  Moments whole;  // of all ranks, found by forward
};

/// One all-gather of count, means and spreads.
Moments moments_of_all(const at::Tensor& x, ProcessGroup& group) {
  const Moments own = moments_of(x);
  const int64_t channels = own.mean.numel();
  const int64_t each = 1 + 2 * channels;
  const at::Tensor mine = at::empty({each}, at::kDouble);
  mine[0] = static_cast<double>(own.count);
  mine.narrow(0, 1, channels).copy_(own.mean);
  mine.narrow(0, 1 + channels, channels).copy_(own.m2);
  const at::Tensor all = at::empty({group.size() * each}, at::kDouble);
  group.all_gather(mine, all).wait();
  std::vector<Moments> parts;
  for (int rank = 0; rank < group.size(); ++rank) {
    const at::Tensor part = all.narrow(0, rank * each, each);
    parts.push_back({.count = static_cast<int64_t>(part.data_ptr<double>()[0]),
                     .mean = part.narrow(0, 1, channels),
                     .m2 = part.narrow(0, 1 + channels, channels)});
  }
  return joined(parts);
}

/// [C] as it stands beside x [B, C, ...].
at::Tensor beside(const at::Tensor& channels, const at::Tensor& x) {
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[1] = channels.numel();
  return channels.to(at::kFloat).view(shape);
}

struct SyncBatchNormFunction : torch::autograd::Function<SyncBatchNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, const c10::intrusive_ptr<Held>& held) {
    held->whole = moments_of_all(x, *held->group);
    if (held->whole.count == 1) {
      throw UsageError(
          "SyncBatchNorm in training: all ranks together have one number a channel, which has no "
          "variance.\n  Give it two samples or more, or call eval().");
    }
    context->save_for_backward({x, weight});
    context->saved_data["held"] = c10::IValue::make_capsule(held);
    return normalized(x, weight, bias, held->whole.mean, held->whole.variance(), held->eps);
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto held =
        c10::static_intrusive_pointer_cast<Held>(context->saved_data["held"].toCapsule());
    const auto saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    const Moments& whole = held->whole;
    ProcessGroup& group = *held->group;
    const int64_t channels = weight.numel();

    const at::Tensor sums = at::zeros({2, channels}, at::kDouble);
    at::Tensor of_x = at::empty_like(x), of_weight, of_bias;
    if (x.numel() > 0) {
      // As if the statistics were constants; what they owe to x comes behind the collective.
      std::tie(of_x, of_weight, of_bias) = at::native_batch_norm_backward(
          gradients[0], x, weight, whole.mean.to(at::kFloat), whole.variance().to(at::kFloat), {},
          {}, /*train=*/false, held->eps, {true, true, true});
      sums[0].copy_(of_bias);
      sums[1].copy_(of_weight);
    } else {
      of_weight = at::zeros_like(weight);
      of_bias = at::zeros_like(weight);
    }
    group
        .all_reduce({{.leaves = {group.rank(), group.rank() + 1}, .value = sums}}, group.size(),
                    sums)
        .wait();
    if (x.numel() > 0) {
      const at::Tensor inverse = whole.variance().add_(held->eps).rsqrt_();
      const at::Tensor share =
          weight.to(at::kDouble).mul_(inverse).div_(static_cast<double>(whole.count));
      const at::Tensor apart = x - beside(whole.mean, x);
      apart.mul_(beside(share * inverse * sums[1], x)).add_(beside(share * sums[0], x));
      of_x.sub_(apart);
    }
    return {of_x, of_weight, of_bias, at::Tensor()};
  }
};

}  // namespace

at::Tensor sync_batch_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                           double eps, const std::shared_ptr<ProcessGroup>& group, Moments* found) {
  const auto held = c10::make_intrusive<Held>();
  held->group = group;
  held->eps = eps;
  at::Tensor y = SyncBatchNormFunction::apply(x, weight, bias, held);
  if (found != nullptr) *found = held->whole;
  return y;
}

at::Tensor normalized(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      const at::Tensor& mean, const at::Tensor& variance, double eps) {
  if (x.numel() == 0) return x.clone();  // the operator divides by the samples
  return std::get<0>(at::native_batch_norm(x, weight, bias, mean.to(at::kFloat),
                                           variance.to(at::kFloat), /*training=*/false,
                                           /*momentum=*/0, eps));
}

}  // namespace parallel

SyncBatchNorm::SyncBatchNorm(int64_t channels, std::shared_ptr<ProcessGroup> group,
                             const SyncBatchNormOptions& options)
    : group_(std::move(group)), options_(options) {
  const auto require = [](bool holds, const std::string& what) {
    if (!holds) throw UsageError("SyncBatchNorm: " + what);
  };
  require(channels >= 1, base::str("channels = ", channels, ", but there is one at least."));
  require(group_ != nullptr, "it needs a process group; lockstep::init() has one.");
  require(options.eps > 0, base::str("eps = ", options.eps, " is not above 0."));
  require(options.momentum >= 0 && options.momentum <= 1,
          base::str("momentum = ", options.momentum, " is outside 0..1."));
  weight = register_parameter("weight", at::ones({channels}));
  bias = register_parameter("bias", at::zeros({channels}));
  running_mean = register_buffer("running_mean", at::zeros({channels}));
  running_var = register_buffer("running_var", at::ones({channels}));
}

at::Tensor SyncBatchNorm::forward(const at::Tensor& x) {
  if (x.dim() < 2 || x.size(1) != weight.numel()) {
    throw UsageError(base::str("SyncBatchNorm over ", weight.numel(), " channels got a tensor of ",
                               x.dim(), " dims", x.dim() < 2 ? "" : base::str(" with ", x.size(1)),
                               ".\n  It wants [samples, channels, ...]."));
  }
  if (!is_training()) {
    return parallel::normalized(x, weight, bias, running_mean, running_var, options_.eps);
  }
  parallel::Moments whole;
  at::Tensor y = parallel::sync_batch_norm(x, weight, bias, options_.eps, group_, &whole);
  if (whole.count > 0) {
    const at::NoGradGuard no_grad;
    running_mean.mul_(1 - options_.momentum).add_(whole.mean.to(at::kFloat), options_.momentum);
    running_var.mul_(1 - options_.momentum)
        .add_(whole.unbiased_variance().to(at::kFloat), options_.momentum);
  }
  return y;
}

}  // namespace lockstep
