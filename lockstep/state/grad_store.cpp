#include "lockstep/state/grad_store.h"

#include <algorithm>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/kernels/span.h"

namespace lockstep::state {

namespace {

int64_t width_of(at::ScalarType type) { return static_cast<int64_t>(c10::elementSize(type)); }

/// One entry a use of a trained parameter, in the order of the table.
std::vector<int> bucket_of_each_use(const plan::ParamTable& table, const plan::BucketPlan& buckets,
                                    const std::vector<std::vector<at::Tensor>>& uses) {
  std::vector<int> bucket_of;
  for (size_t p = 0; p < table.params.size(); ++p) {
    if (buckets.slots[p].bucket < 0) continue;
    bucket_of.insert(bucket_of.end(), uses[p].size(), buckets.slots[p].bucket);
  }
  return bucket_of;
}

}  // namespace

GradStore::GradStore(const plan::ParamTable& table, const plan::BucketPlan& buckets,
                     const std::vector<std::vector<at::Tensor>>& uses, ProcessGroup& group,
                     const plan::LeafSchedule& leaves, const GradStoreOptions& options)
    : table_(table),
      buckets_(buckets),
      group_(group),
      options_(options),
      leaves_(leaves.grains),
      last_micro_(options.micro_batches_per_grain - 1),
      terms_(plan::maximal_subtrees(leaves.grains, leaves.run_of(group.rank()))),
      places_(static_cast<size_t>(leaves.grains)),
      uses_of_bucket_(buckets.buckets.size()),
      uses_of_param_(table.params.size()),
      arrivals_(bucket_of_each_use(table, buckets, uses), static_cast<int>(buckets.buckets.size()),
                options.arrivals) {
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
  for (size_t t = 0; t < std::max<size_t>(1, terms_.size()); ++t) {
    term_buffers_.push_back(group_.allocate({buckets_.numel}, options_.type));
  }
  for (int level = 1; level < levels; ++level) {
    scratch_.push_back(at::zeros({buckets_.numel}, options_.type));
  }

  for (size_t p = 0; p < table_.params.size(); ++p) {
    const int bucket = buckets_.slots[p].bucket;
    if (bucket < 0) continue;
    for (size_t u = 0; u < uses[p].size(); ++u) {
      Use use{.param = static_cast<int>(p),
              .index = static_cast<int>(u),
              .leaf = uses[p][u],
              .side = {},
              .late = {}};
      if (u > 0) use.side = at::zeros(table_.params[p].shape, options_.type);
      uses_of_bucket_[static_cast<size_t>(bucket)].push_back(static_cast<int>(uses_.size()));
      uses_of_param_[p].push_back(static_cast<int>(uses_.size()));
      uses_.push_back(std::move(use));
    }
  }
  for (size_t index = 0; index < uses_.size(); ++index) {
    hooks_.watch(uses_[index].leaf, [this, index] { gradient_arrived(static_cast<int>(index)); });
  }
}

void GradStore::begin_backward(const BackwardPass& pass) {
  LOCKSTEP_ASSERT(places_[static_cast<size_t>(pass.leaf)].term >= 0,
                  "a rank computes its own leaves");
  pass_ = pass;
  open_ = true;
  if (pass.last) arrivals_.begin();
  for (Use& use : uses_) {
    if (pass.last) use.late = at::Tensor();
    if (!pass.fresh) continue;
    use.filled = false;
    // Undefined, autograd hands over its own tensor, and the first term becomes a copy.
    if (pass.clear) use.leaf.mutable_grad() = at::Tensor();
  }
  if (pass.clear) return;
  for (Use& use : uses_) {
    // The owner of the gradients may have put a tensor of his own there.
    if (use.leaf.grad().defined()) take_in(use);
  }
}

void GradStore::gradient_arrived(int index) {
  Use& use = uses_[static_cast<size_t>(index)];
  if (!open_) {
    throw UsageError(base::str(
        "a gradient of \"", table_.params[static_cast<size_t>(use.param)].name,
        "\" arrived outside a backward of DistributedDataParallel: it would stay this rank's "
        "own.\n  Call ddp.backward(loss) instead of loss.backward(), or hold ddp.no_sync() while "
        "gradients of this module are accumulated."));
  }
  const bool defined = use.leaf.grad().defined();
  // Its slot is being reduced; autograd left the gradient in a tensor of its own.
  if (pass_.last && arrivals_.complete(index)) {
    use.filled |= defined;
    return;
  }
  if (defined) {
    use.filled = true;
    take_in(use);
  } else if (!use.filled) {
    // A function of the graph gave no gradient: the bucket may go before this backward ends.
    target_of(use).zero_();
  }
  if (!pass_.last) return;
  const int ready = arrivals_.arrived(index);
  if (ready >= 0) bucket_is_ready(ready);
}

/// Brings the gradient of `use` into its slot, where the next ones are added in place.
void GradStore::take_in(Use& use) {
  const at::Tensor target = target_of(use);
  at::Tensor& grad = use.leaf.mutable_grad();
  if (grad.is_sparse() || grad.scalar_type() != target.scalar_type() ||
      grad.sizes() != target.sizes()) {
    throw UsageError(base::str(
        "the gradient of \"", table_.params[static_cast<size_t>(use.param)].name, "\" is ",
        grad.is_sparse() ? "sparse" : grad.toString() + " of another shape or type",
        "; it was made for dense ", target.toString(), " ", target.sizes(),
        ".\n  Dense gradients only; convert a module before its gradients are set up."));
  }
  if (grad.data_ptr() == target.data_ptr()) return;
  target.copy_(grad);
  grad = target;
}

void GradStore::bucket_is_ready(int bucket) {
  if (options_.arrivals == Arrivals::Promise::learned) {
    for (const int index : uses_of_bucket_[static_cast<size_t>(bucket)]) {
      Use& use = uses_[static_cast<size_t>(index)];
      settle(use);
      // A gradient that comes after all must not be added to memory that is being reduced.
      use.leaf.mutable_grad() = at::Tensor();
    }
  }
  if (ready_) ready_(bucket);
}

/// Without a gradient the slot is zero: it holds what was reduced last.
void GradStore::settle(Use& use) {
  if (use.leaf.grad().defined()) return;
  use.filled = false;
  target_of(use).zero_();
}

void GradStore::end_backward() {
  open_ = false;
  if (!pass_.last) return;
  std::vector<bool> complete(uses_.size());
  for (size_t u = 0; u < uses_.size(); ++u) complete[u] = arrivals_.complete(static_cast<int>(u));
  const std::vector<int> rest = arrivals_.end();
  for (size_t u = 0; u < uses_.size(); ++u) {
    Use& use = uses_[u];
    at::Tensor& grad = use.leaf.mutable_grad();
    if (complete[u]) {
      if (options_.arrivals == Arrivals::Promise::once) continue;  // in its slot
      use.late = grad;
    }
    if (!complete[u]) settle(use);
    grad = target_of(use);
  }
  for (const int bucket : rest) {
    if (ready_) ready_(bucket);
  }
}

bool GradStore::absent(int param) const {
  const std::vector<int>& uses = uses_of_param_[static_cast<size_t>(param)];
  return std::none_of(uses.begin(), uses.end(),
                      [this](int use) { return uses_[static_cast<size_t>(use)].filled; });
}

at::Tensor GradStore::late(int param) const {
  for (const int use : uses_of_param_[static_cast<size_t>(param)]) {
    if (uses_[static_cast<size_t>(use)].late.defined()) return uses_[static_cast<size_t>(use)].late;
  }
  return {};
}

at::Tensor GradStore::bucket(int bucket) const {
  const plan::Bucket& range = buckets_.buckets[static_cast<size_t>(bucket)];
  return term_buffers_[0].narrow(0, range.offset, range.numel);
}

void GradStore::fold_use(int param, int leaf) {
  const at::Tensor slot = slot_view(places_[static_cast<size_t>(leaf)], param);
  for (const int index : uses_of_param_[static_cast<size_t>(param)]) {
    const Use& use = uses_[static_cast<size_t>(index)];
    if (!use.side.defined()) continue;
    kernels::add(slot.data_ptr<float>(), use.side.data_ptr<float>(), slot.numel());
  }
}

void GradStore::fold(int bucket, int leaf) {
  const plan::Bucket& range = buckets_.buckets[static_cast<size_t>(bucket)];
  LeafPlace place = places_[static_cast<size_t>(leaf)];
  for (; place.merges > 0; --place.merges) {
    const float* top = buffer(place).data_ptr<float>() + range.offset;
    --place.level;
    kernels::add(buffer(place).data_ptr<float>() + range.offset, top, range.numel);
  }
}

Work GradStore::reduce(int bucket) {
  const plan::Bucket& range = buckets_.buckets[static_cast<size_t>(bucket)];
  std::vector<LeafTerm> terms;
  for (size_t t = 0; t < terms_.size(); ++t) {
    terms.push_back({terms_[t], term_buffers_[t].narrow(0, range.offset, range.numel)});
  }
  return group_.all_reduce(std::move(terms), leaves_, this->bucket(bucket));
}

Work GradStore::reduce_over_ranks(int bucket, ReduceOp op) {
  LOCKSTEP_ASSERT(leaves_ == group_.size(), "one leaf a rank");
  return group_.all_reduce(this->bucket(bucket), op);
}

const float* GradStore::gradient(int param) const {
  return term_buffers_[0].data_ptr<float>() + buckets_.slots[static_cast<size_t>(param)].offset;
}

int64_t GradStore::heap_bytes() const {
  return static_cast<int64_t>(term_buffers_.size()) * buckets_.numel * width_of(options_.type);
}

int64_t GradStore::scratch_bytes() const {
  const int64_t width = width_of(options_.type);
  int64_t bytes = static_cast<int64_t>(scratch_.size()) * buckets_.numel * width;
  for (const Use& use : uses_) {
    if (use.side.defined()) bytes += use.side.numel() * width;
  }
  return bytes;
}

const at::Tensor& GradStore::buffer(const LeafPlace& place) const {
  return place.level == 0 ? term_buffers_[static_cast<size_t>(place.term)]
                          : scratch_[static_cast<size_t>(place.level - 1)];
}

at::Tensor GradStore::slot_view(const LeafPlace& place, int param) const {
  const plan::Slot& slot = buckets_.slots[static_cast<size_t>(param)];
  return buffer(place)
      .narrow(0, slot.offset, slot.numel)
      .view(table_.params[static_cast<size_t>(param)].shape);
}

at::Tensor GradStore::target_of(const Use& use) const {
  return use.side.defined() ? use.side
                            : slot_view(places_[static_cast<size_t>(pass_.leaf)], use.param);
}

}  // namespace lockstep::state
