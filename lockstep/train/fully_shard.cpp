#include "lockstep/train/fully_shard.h"

#include <ATen/core/grad_mode.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/optim/clip.h"
#include "lockstep/train/detail/sharded_module.h"

namespace lockstep {

struct FullyShard::Impl : detail::ShardedModule {
  using ShardedModule::ShardedModule;
};

FullyShard::FullyShard(std::shared_ptr<torch::nn::Module> module,
                       std::shared_ptr<ProcessGroup> group, const FullyShardOptions& options) {
  if (!module || !group) {
    throw UsageError("fully_shard needs a module and a process group, not null.");
  }
  impl_ = std::make_unique<Impl>(std::move(module), std::move(group), options);
}

FullyShard::~FullyShard() = default;
FullyShard::FullyShard(FullyShard&& other) noexcept = default;
FullyShard& FullyShard::operator=(FullyShard&& other) noexcept = default;

std::vector<at::Tensor> FullyShard::parameters() const {
  std::vector<at::Tensor> all;
  for (const OwnShard& shard : impl_->shards) all.push_back(shard.values);
  return all;
}

std::vector<at::Tensor> FullyShard::parameters(bool matrices) const {
  std::vector<at::Tensor> some;
  for (const OwnShard& shard : impl_->shards) {
    if (shard.matrices == matrices) some.push_back(shard.values);
  }
  return some;
}

const std::vector<OwnShard>& FullyShard::shards() const { return impl_->shards; }

void FullyShard::zero_grad() {
  for (const OwnShard& shard : impl_->shards) shard.values.mutable_grad() = at::Tensor();
}

void FullyShard::backward(const at::Tensor& loss, const at::Tensor& gradient, bool retain_graph) {
  impl_->backward(loss, gradient, retain_graph);
}

FullyShard::NoSync::NoSync(FullyShard& handle) : local_(handle.impl_->local) {
  if (local_) throw UsageError("no_sync() inside another no_sync().");
  local_ = true;
}

FullyShard::NoSync::~NoSync() { local_ = false; }

double FullyShard::clip_grad_norm(double max_norm, Norm norm) {
  if (!(max_norm > 0)) {
    throw UsageError(base::str("clip_grad_norm(", max_norm, "): the limit must be positive."));
  }
  const auto gradient = [this](const plan::Piece& piece) { return impl_->gradient(piece); };
  const double value =
      norm == Norm::euclidean ? impl_->norm->euclidean(gradient) : impl_->norm->largest(gradient);
  const double scale = optim::clip_scale(value, max_norm);
  if (scale == 1.0) return value;
  const at::NoGradGuard no_grad;
  for (const OwnShard& shard : impl_->shards) {
    if (shard.values.grad().defined()) shard.values.grad().mul_(scale);
  }
  return value;
}

at::Tensor FullyShard::whole(const std::string& path) { return impl_->whole(path); }

void FullyShard::release() {
  impl_->flow->shards_are_written();
  impl_->flow->drop_old();
}

FullyShardCounts FullyShard::counts() const {
  int64_t shard_numel = 0;
  for (const bool trained : {true, false}) {
    shard_numel += impl_->layout.owned_numel(impl_->group->rank(), trained);
  }
  return {.gathers = impl_->units->gathers(),
          .most_gathered = impl_->units->most_gathered(),
          .reductions = impl_->reductions,
          .moved_bytes = impl_->gathering->totals().bytes + impl_->reducing->totals().bytes,
          .shard_bytes = 4 * shard_numel,
          .most_gradient_bytes = impl_->grads->most_leaf_bytes()};
}

torch::nn::Module& FullyShard::module() const { return *impl_->module; }
ProcessGroup& FullyShard::group() const { return *impl_->group; }

}  // namespace lockstep
