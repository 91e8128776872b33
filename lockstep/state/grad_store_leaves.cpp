// Leaves with gradient buffers of their own: those that are reduced by round, those of a pipeline
// whose weights come later, and the uses of a parameter in several pieces of a model.
#include <algorithm>

#include "lockstep/base/assert.h"
#include "lockstep/base/planted_fault.h"
#include "lockstep/kernels/span.h"
#include "lockstep/state/grad_store.h"
#include "lockstep/state/heap_tensor.h"

namespace lockstep::state {

void GradStore::add_deferred(const at::Tensor& use, int leaf, int micro,
                             const at::Tensor& gradient) {
  const auto found = std::find_if(uses_.begin(), uses_.end(), [&](const Use& candidate) {
    return candidate.leaf.unsafeGetTensorImpl() == use.unsafeGetTensorImpl();
  });
  LOCKSTEP_ASSERT(found != uses_.end(), "what is deferred is a parameter's gradient");
  const at::Tensor target = target_of(*found, leaf);
  if (micro == 0) {
    target.copy_(gradient);
  } else {
    kernels::add(target.data_ptr<float>(), gradient.contiguous().data_ptr<float>(), target.numel());
  }
  deferred_.insert({static_cast<int>(found - uses_.begin()), leaf});
}

void GradStore::complete(int chunk, int leaf) {
  for (size_t u = 0; u < uses_.size(); ++u) {
    Use& use = uses_[u];
    if (use.chunk != chunk) continue;
    const std::pair<int, int> of_leaf{static_cast<int>(u), leaf};
    const at::Tensor target = target_of(use, leaf);
    if (deferred_.erase(of_leaf) + filled_.erase(of_leaf) == 0) target.zero_();
    // The next leaf of the chunk may have begun, where this one's weights come later.
    at::Tensor& grad = use.leaf.mutable_grad();
    if (grad.defined() && grad.data_ptr() == target.data_ptr()) grad = at::Tensor();
  }
}

void GradStore::tie(int param, int leaf) {
  const plan::Param& of = table_.params[static_cast<size_t>(param)];
  for (const int index : uses_of_param_[static_cast<size_t>(param)]) {
    const Use& use = uses_[static_cast<size_t>(index)];
    const int of_sums = sum_leaf(leaf, use.context);
    const at::Tensor first = leaf_slot(param, of_sums);
    if (of.elsewhere.empty()) {
      if (use.index == 0) continue;
      const at::Tensor side = target_of(use, leaf);
      kernels::add(first.data_ptr<float>(), side.data_ptr<float>(), first.numel());
      leaf_sides_.erase({index, leaf});
      continue;
    }
    if (base::planted(base::Fault::untied_head)) return;
    // Two uses, one here: as two leaves of a sum, in name order.
    const int place = of.uses[0] < of.elsewhere[0] ? 0 : 1;
    const at::Tensor flat = first.view({-1});
    ties_.insert_or_assign({param, of_sums},
                           options_.ties->all_reduce({{{place, place + 1}, flat}}, 2, flat));
  }
}

void GradStore::await_ties(int bucket, int leaf) {
  for (const int param : buckets_.buckets[static_cast<size_t>(bucket)].params) {
    const auto found = ties_.find({param, leaf});
    if (found == ties_.end()) continue;
    found->second.wait();
    ties_.erase(found);
  }
}

int GradStore::on_leaf(SeeLeaf see) {
  const int listener = see_leaf_.empty() ? 0 : see_leaf_.rbegin()->first + 1;
  see_leaf_.emplace(listener, std::move(see));
  return listener;
}

void GradStore::see_leaf(int bucket, int leaf) {
  if (see_leaf_.empty()) return;
  for (const int param : buckets_.buckets[static_cast<size_t>(bucket)].params) {
    const at::Tensor slot =
        by_round() ? leaf_slot(param, leaf) : slot_view(places_.at(leaf).level, param);
    for (const auto& [listener, see] : see_leaf_) see(param, leaf, slot.data_ptr<float>());
  }
}

bool GradStore::is_apart(int bucket) const {
  const int param = buckets_.buckets[static_cast<size_t>(bucket)].params.front();
  return options_.leaves_apart || table_.params[static_cast<size_t>(param)].is_across;
}

at::Tensor GradStore::leaf_slot(int param, int leaf) {
  const plan::Slot& slot = buckets_.slots[static_cast<size_t>(param)];
  const plan::Bucket& bucket = buckets_.buckets[static_cast<size_t>(slot.bucket)];
  at::Tensor& buffer = leaf_buffers_[{slot.bucket, leaf}];
  if (!buffer.defined()) {
    buffer = heap_tensor(group_, bucket.numel, options_.type, memory::Kind::gradients);
    leaf_bytes_ += buffer.numel() * buffer.element_size();
    most_leaf_bytes_ = std::max(most_leaf_bytes_, leaf_bytes_);
  }
  return buffer.narrow(0, slot.offset - bucket.offset, slot.numel)
      .view(table_.params[static_cast<size_t>(param)].shape);
}

void GradStore::free_leaf_buffer(int bucket, int leaf) {
  const auto found = leaf_buffers_.find({bucket, leaf});
  if (found == leaf_buffers_.end()) return;
  const at::Tensor& buffer = found->second;
  for (const int index : uses_of_bucket_[static_cast<size_t>(bucket)]) {
    at::Tensor& grad = uses_[static_cast<size_t>(index)].leaf.mutable_grad();
    // Not what came late, in a tensor of its own.
    if (grad.defined() && grad.is_alias_of(buffer)) grad = at::Tensor();
  }
  leaf_bytes_ -= buffer.numel() * buffer.element_size();
  leaf_buffers_.erase(found);
}

at::Tensor GradStore::target_of(const Use& use, int leaf) {
  if (use.side.defined()) return use.side;
  const int bucket = buckets_.slots[static_cast<size_t>(use.param)].bucket;
  const bool apart = is_apart(bucket);
  if (apart && use.index > 0) {
    const auto index = static_cast<int>(&use - uses_.data());
    at::Tensor& side = leaf_sides_[{index, leaf}];
    if (!side.defined())
      side = at::zeros(table_.params[static_cast<size_t>(use.param)].shape, options_.type);
    return side;
  }
  const int of_sums = sum_leaf(leaf, use.context);
  return by_round() || apart ? leaf_slot(use.param, of_sums)
                             : slot_view(places_.at(of_sums).level, use.param);
}

}  // namespace lockstep::state
