#include "lockstep/state/grad_store.h"

#include <algorithm>

#include "lockstep/base/assert.h"
#include "lockstep/kernels/span.h"

namespace lockstep::state {

GradStore::GradStore(ParamStore& params, ProcessGroup& group, const plan::LeafSchedule& leaves,
                     int micro_batches_per_grain)
    : params_(params),
      group_(group),
      leaves_(leaves.grains),
      last_micro_(micro_batches_per_grain - 1),
      terms_(plan::maximal_subtrees(leaves.grains, leaves.run_of(group.rank()))),
      places_(static_cast<size_t>(leaves.grains)) {
  int levels = 1;
  for (size_t t = 0; t < terms_.size(); ++t) {
    plan::FoldStack stack(terms_[t].size());
    levels = std::max(levels, plan::FoldStack::levels_needed(terms_[t].size()));
    for (int leaf = terms_[t].lo; leaf < terms_[t].hi; ++leaf) {
      LeafPlace& place = places_[static_cast<size_t>(leaf)];
      place.term = static_cast<int>(t);
      place.level = stack.level();
      place.merges = stack.push();
    }
  }

  // A rank without a leaf still needs a place for the result.
  const plan::BucketPlan& buckets = params_.buckets();
  for (size_t t = 0; t < std::max<size_t>(1, terms_.size()); ++t) {
    term_buffers_.push_back(group_.allocate({buckets.numel}));
  }
  for (int level = 1; level < levels; ++level) {
    scratch_.push_back(at::zeros({buckets.numel}, at::kFloat));
  }

  uses_in_bucket_.assign(buckets.buckets.size(), 0);
  const plan::ParamTable& table = params_.table();
  for (size_t p = 0; p < table.params.size(); ++p) {
    if (buckets.slots[p].bucket < 0) continue;
    const plan::Param& param = table.params[p];
    for (size_t u = 0; u < param.uses.size(); ++u) {
      Use use{.param = static_cast<int>(p),
              .index = static_cast<int>(u),
              .leaf = params_.use(static_cast<int>(p), static_cast<int>(u)),
              .side = {}};
      if (u > 0) use.side = at::zeros(param.shape, at::kFloat);
      uses_.push_back(std::move(use));
      ++uses_in_bucket_[static_cast<size_t>(buckets.slots[p].bucket)];
    }
  }
  uses_missing_ = uses_in_bucket_;
  for (Use& use : uses_) {
    hooks_.watch(use.leaf, [this, &use] { gradient_arrived(use); });
  }
}

void GradStore::begin_backward(int leaf, int micro) {
  LOCKSTEP_ASSERT(places_[static_cast<size_t>(leaf)].term >= 0, "a rank computes its own leaves");
  leaf_ = leaf;
  micro_ = micro;
  if (micro > 0) return;
  uses_missing_ = uses_in_bucket_;
  for (Use& use : uses_) {
    use.filled = false;
    use.ready = false;
    // Undefined, autograd hands over its own tensor, and the first term becomes a copy.
    use.leaf.mutable_grad() = at::Tensor();
  }
}

void GradStore::gradient_arrived(Use& use) {
  const at::Tensor target = target_of(use);
  at::Tensor& grad = use.leaf.mutable_grad();
  if (grad.data_ptr() != target.data_ptr()) {
    target.copy_(grad);
    grad = target;
  }
  use.filled = true;
  if (micro_ == last_micro_) mark_ready(use);
}

void GradStore::mark_ready(Use& use) {
  LOCKSTEP_ASSERT(!use.ready, "one gradient a parameter use and backward");
  use.ready = true;
  const int bucket = params_.buckets().slots[static_cast<size_t>(use.param)].bucket;
  if (--uses_missing_[static_cast<size_t>(bucket)] == 0 && ready_) ready_(bucket);
}

void GradStore::end_backward() {
  if (micro_ != last_micro_) return;
  for (Use& use : uses_) {
    if (use.ready) continue;
    if (!use.filled) target_of(use).zero_();
    mark_ready(use);
  }
}

void GradStore::fold_use(int param, int leaf) {
  const at::Tensor slot = slot_view(places_[static_cast<size_t>(leaf)], param);
  for (const Use& use : uses_) {
    if (use.param != param || !use.side.defined()) continue;
    kernels::add(slot.data_ptr<float>(), use.side.data_ptr<float>(), slot.numel());
  }
}

void GradStore::fold(int bucket, int leaf) {
  const plan::Bucket& range = params_.buckets().buckets[static_cast<size_t>(bucket)];
  LeafPlace place = places_[static_cast<size_t>(leaf)];
  for (; place.merges > 0; --place.merges) {
    const float* top = buffer(place).data_ptr<float>() + range.offset;
    --place.level;
    kernels::add(buffer(place).data_ptr<float>() + range.offset, top, range.numel);
  }
}

Work GradStore::reduce(int bucket) {
  const plan::Bucket& range = params_.buckets().buckets[static_cast<size_t>(bucket)];
  std::vector<LeafTerm> terms;
  for (size_t t = 0; t < terms_.size(); ++t) {
    terms.push_back({terms_[t], term_buffers_[t].narrow(0, range.offset, range.numel)});
  }
  return group_.all_reduce(std::move(terms), leaves_,
                           term_buffers_[0].narrow(0, range.offset, range.numel));
}

const float* GradStore::gradient(int param) const {
  return term_buffers_[0].data_ptr<float>() +
         params_.buckets().slots[static_cast<size_t>(param)].offset;
}

int64_t GradStore::heap_bytes() const {
  return static_cast<int64_t>(term_buffers_.size()) * params_.buckets().numel * 4;
}

int64_t GradStore::scratch_bytes() const {
  int64_t bytes = static_cast<int64_t>(scratch_.size()) * params_.buckets().numel * 4;
  for (const Use& use : uses_) {
    if (use.side.defined()) bytes += use.side.numel() * 4;
  }
  return bytes;
}

const at::Tensor& GradStore::buffer(const LeafPlace& place) const {
  return place.level == 0 ? term_buffers_[static_cast<size_t>(place.term)]
                          : scratch_[static_cast<size_t>(place.level - 1)];
}

at::Tensor GradStore::slot_view(const LeafPlace& place, int param) const {
  const plan::Slot& slot = params_.buckets().slots[static_cast<size_t>(param)];
  return buffer(place)
      .narrow(0, slot.offset, slot.numel)
      .view(params_.table().params[static_cast<size_t>(param)].shape);
}

at::Tensor GradStore::target_of(const Use& use) const {
  return use.side.defined() ? use.side : slot_view(places_[static_cast<size_t>(leaf_)], use.param);
}

}  // namespace lockstep::state
