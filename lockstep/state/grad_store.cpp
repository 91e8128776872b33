#include "lockstep/state/grad_store.h"

#include <algorithm>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/planted_fault.h"
#include "lockstep/base/str.h"
#include "lockstep/kernels/span.h"
#include "lockstep/state/heap_tensor.h"

namespace lockstep::state {

namespace {

using base::Fault;
using base::planted;

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

GradStore::GradStore(const ParamStore& params, ProcessGroup& group, const plan::StepInputs& inputs,
                     int rank, ProcessGroup* replica, ProcessGroup* ties)
    : GradStore(params.table(), params.buckets(), params.uses(), group, inputs.leaves,
                {.micro_batches_per_grain = inputs.batch.micro_batches_per_grain,
                 .shards = params.layout().sharded() ? &params.layout() : nullptr,
                 .rank = rank,
                 .rounds = params.layout().sharded() ? plan::leaf_rounds(inputs, rank)
                                                     : plan::LeafRounds{},
                 .replica = replica,
                 .leaves_apart = inputs.leaves_apart(),
                 .ties = ties}) {}

GradStore::GradStore(const plan::ParamTable& table, const plan::BucketPlan& buckets,
                     const std::vector<std::vector<at::Tensor>>& uses, ProcessGroup& group,
                     const plan::LeafSchedule& leaves, const GradStoreOptions& options)
    : table_(table),
      buckets_(buckets),
      group_(group),
      options_(options),
      schedule_(leaves),
      contexts_(leaves.context_of(options.rank < 0 ? group.rank() : options.rank)),
      last_micro_(options.micro_batches_per_grain - 1),
      shards_(options.shards),
      uses_of_bucket_(buckets.buckets.size()),
      uses_of_param_(table.params.size()),
      arrivals_(bucket_of_each_use(table, buckets, uses), static_cast<int>(buckets.buckets.size()),
                options.arrivals) {
  for (const auto& round : options_.rounds.rounds) {
    nodes_.insert(nodes_.end(), round.begin(), round.end());
  }
  if (!by_round()) {
    make_levels(plan::plan_local_folds(leaves, options_.rank < 0 ? group.rank() : options_.rank));
  }
  watch(uses);
}

void GradStore::make_levels(const plan::LeafRounds& folds) {
  for (const auto& round : folds.rounds) {
    for (const plan::RoundNode& leaf : round) places_.emplace(leaf.leaves.lo, leaf);
  }
  terms_ = folds.kept;
  const memory::KindScope kind(memory::Kind::gradients);
  // A rank without a leaf still needs a place for the result, which is on level 0.
  for (int level = 0; level < std::max(1, folds.levels); ++level) {
    const bool sent =
        level == 0 || std::any_of(terms_.begin(), terms_.end(),
                                  [&](const auto& term) { return term.level == level; });
    levels_.push_back(
        sent ? heap_tensor(group_, buckets_.numel, options_.type, memory::Kind::gradients).zero_()
             : at::zeros({buckets_.numel}, options_.type));
  }
}

void GradStore::watch(const std::vector<std::vector<at::Tensor>>& uses) {
  const memory::KindScope kind(memory::Kind::gradients);
  if (shards_ != nullptr) {
    int64_t numel = 0;
    for (size_t b = 0; b < buckets_.buckets.size(); ++b) {
      slice_offset_.push_back(numel);
      numel += shards_->owned(static_cast<int>(b), group_.rank()).size();
    }
    // With one sum a bucket, zero1's slices are this rank's part of its own term.
    const int levels = slices_in_place() ? 0 : options_.rounds.levels;
    for (int level = 0; level < levels; ++level) {
      slices_.push_back(at::zeros({numel}, options_.type));
    }
  }
  for (size_t p = 0; p < table_.params.size(); ++p) {
    const int bucket = buckets_.slots[p].bucket;
    if (bucket < 0) continue;
    for (size_t u = 0; u < uses[p].size(); ++u) {
      const auto grains = static_cast<size_t>(contexts_.size());
      const size_t index = u / grains;
      Use use{.param = static_cast<int>(p),
              .index = static_cast<int>(index),
              .context = contexts_.lo + static_cast<int>(u % grains),
              .leaf = uses[p][u],
              .side = {},
              .late = {},
              .chunk = table_.params[p].use_chunks[index]};
      if (index > 0 && !is_apart(bucket)) {
        use.side = at::zeros(table_.params[p].shape, options_.type);
      }
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
  LOCKSTEP_ASSERT(by_round() || places_.contains(sum_leaf(pass.leaf, contexts_.lo)),
                  "a rank computes its own leaves");
  pass_ = pass;
  open_ = true;
  if (pass.last) arrivals_.begin();
  for (Use& use : uses_) {
    if (!in_pass(use)) continue;
    if (pass.last) use.late = at::Tensor();
    if (!pass.fresh) {
      if (planted(Fault::rescaled_accumulation) && group_.rank() > 0 && use.leaf.grad().defined()) {
        use.leaf.mutable_grad().mul_(0.5);
      }
      continue;
    }
    use.filled = false;
    if (planted(Fault::gradients_kept) && group_.rank() > 0 && use.leaf.grad().defined()) continue;
    // Undefined, autograd hands over its own tensor, and the first term becomes a copy.
    if (pass.clear) use.leaf.mutable_grad() = at::Tensor();
  }
  if (pass.clear) return;
  for (Use& use : uses_) {
    // The owner of the gradients may have put a tensor of his own there.
    if (in_pass(use) && use.leaf.grad().defined()) take_in(use);
  }
}

void GradStore::gradient_arrived(int index) {
  Use& use = uses_[static_cast<size_t>(index)];
  if (!open_) {
    throw UsageError(
        base::str("a gradient of \"", table_.params[static_cast<size_t>(use.param)].name,
                  "\" arrived outside a backward of ", options_.owner,
                  ": it would stay this rank's own.\n  Call ", options_.handle,
                  ".backward(loss) instead of loss.backward(), or hold ", options_.handle,
                  ".no_sync() while gradients of this module are accumulated."));
  }
  const bool defined = use.leaf.grad().defined();
  // Its slot is being reduced; autograd left the gradient in a tensor of its own.
  if (pass_.last && arrivals_.complete(index)) {
    use.filled |= defined;
    return;
  }
  if (defined) {
    use.filled = true;
    if (pass_.chunk >= 0) filled_.insert({index, pass_.leaf});
    take_in(use);
  } else if (!use.filled) {
    // A function of the graph gave no gradient: the bucket may go before this backward ends.
    target_of(use, pass_.leaf).zero_();
  }
  if (!pass_.last) return;
  const int ready = arrivals_.arrived(index);
  if (ready >= 0) bucket_is_ready(ready);
}

/// Brings the gradient of `use` into its slot, where the next ones are added in place.
void GradStore::take_in(Use& use) {
  const at::Tensor target = target_of(use, pass_.leaf);
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
  if (options_.arrivals != Arrivals::Promise::once) {
    for (const int index : uses_of_bucket_[static_cast<size_t>(bucket)]) {
      Use& use = uses_[static_cast<size_t>(index)];
      zero_if_absent(use);
      // A gradient that comes after all must not be added to memory that is being reduced.
      use.leaf.mutable_grad() = at::Tensor();
    }
  }
  if (ready_) ready_(bucket);
}

/// Without a gradient the slot is zero: it holds what was reduced last.
void GradStore::zero_if_absent(Use& use) {
  if (use.leaf.grad().defined()) return;
  use.filled = false;
  target_of(use, pass_.leaf).zero_();
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
    if (complete[u] && by_round()) {
      grad = at::Tensor();  // its slot has gone
      continue;
    }
    if (!complete[u]) zero_if_absent(use);
    grad = target_of(use, pass_.leaf);
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

at::Tensor GradStore::bucket(int bucket) const { return on_level(0, bucket); }

void GradStore::fold_use(int param, int leaf) {
  const int bucket = buckets_.slots[static_cast<size_t>(param)].bucket;
  for (const int index : uses_of_param_[static_cast<size_t>(param)]) {
    const Use& use = uses_[static_cast<size_t>(index)];
    if (use.index == 0) continue;
    const int of_sums = sum_leaf(leaf, use.context);
    const at::Tensor slot = by_round() || is_apart(bucket)
                                ? leaf_slot(param, of_sums)
                                : slot_view(places_.at(of_sums).level, param);
    const at::Tensor side = target_of(use, leaf);
    kernels::add(slot.data_ptr<float>(), side.data_ptr<float>(), slot.numel());
    if (planted(Fault::tied_twice) && group_.size() > 1) {
      kernels::add(slot.data_ptr<float>(), side.data_ptr<float>(), slot.numel());
    }
    leaf_sides_.erase({index, leaf});
  }
}

void GradStore::fold(int bucket, int leaf) {
  for (int context = contexts_.lo; context < contexts_.hi; ++context) {
    const int of_sums = sum_leaf(leaf, context);
    const plan::RoundNode& place = places_.at(of_sums);
    if (is_apart(bucket)) {
      await_ties(bucket, of_sums);
      on_level(place.level, bucket).copy_(leaf_buffers_.at({bucket, of_sums}));
      free_leaf_buffer(bucket, of_sums);
    }
    see_leaf(bucket, of_sums);
    const bool lost = planted(Fault::lost_context_grain) && group_.size() > 1 && context > 0;
    if (lost || (planted(Fault::lost_leaf) && !place.additions.empty())) {
      on_level(place.level, bucket).zero_();
    }
    for (const plan::AddStep step : place.additions) {
      const at::Tensor from = on_level(step.from, bucket);
      kernels::add(on_level(step.into, bucket).data_ptr<float>(), from.data_ptr<float>(),
                   from.numel());
    }
  }
}

Work GradStore::reduce(int bucket) {
  std::vector<LeafTerm> terms;
  for (const plan::LeafRounds::Kept& term : terms_) {
    terms.push_back({term.leaves, on_level(term.level, bucket)});
  }
  if (planted(Fault::skipped_reduction) && bucket == 0) {
    return group_.all_reduce(at::zeros({1}, options_.type));
  }
  if (planted(Fault::leaf_order)) return group_.all_reduce(this->bucket(bucket), ReduceOp::sum);
  return group_.all_reduce(std::move(terms), schedule_.sum_leaves(), this->bucket(bucket));
}

Work GradStore::reduce(int bucket, plan::LeafRange node, int leaf) {
  std::vector<LeafTerm> terms;
  for (int context = contexts_.lo; by_round() && leaf >= 0 && context < contexts_.hi; ++context) {
    const int of_sums = sum_leaf(leaf, context);
    // A phantom round has no leaf, and no buffer was made.
    const auto found = leaf_buffers_.find({bucket, of_sums});
    if (found == leaf_buffers_.end() || !node.contains({of_sums, of_sums + 1})) continue;
    await_ties(bucket, of_sums);
    std::vector<int>& settled = settled_[bucket];
    if (std::find(settled.begin(), settled.end(), of_sums) == settled.end()) {
      see_leaf(bucket, of_sums);
    }
    terms.push_back({{of_sums, of_sums + 1}, found->second});
    settled.push_back(of_sums);
  }
  for (const plan::LeafRounds::Kept& term : terms_) {
    if (node.contains(term.leaves)) {
      terms.push_back({term.leaves, on_level(term.level, bucket)});
    }
  }
  Work work =
      group_.reduce_scatter_uneven(std::move(terms), schedule_.sum_leaves(),
                                   slice(bucket, node_of(node).level), shards_->counts(bucket));
  if (by_round()) under_way_.insert_or_assign({bucket, node}, work);
  return work;
}

void GradStore::settle(int bucket, plan::LeafRange node) {
  const auto found = under_way_.find({bucket, node});
  LOCKSTEP_ASSERT(found != under_way_.end(), "what settles was reduced");
  found->second.wait();
  under_way_.erase(found);
  const plan::RoundNode& place = node_of(node);
  for (const plan::AddStep step : place.additions) {
    const at::Tensor from = slice(bucket, step.from);
    kernels::add(slice(bucket, step.into).data_ptr<float>(), from.data_ptr<float>(), from.numel());
  }
  const auto next = under_way_.lower_bound({bucket, plan::LeafRange{}});
  if (next != under_way_.end() && next->first.first == bucket) return;
  for (const int leaf : settled_[bucket]) free_leaf_buffer(bucket, leaf);
  settled_[bucket].clear();
}

Work GradStore::across(int bucket) {
  std::vector<LeafTerm> terms;
  for (const plan::LeafRounds::Kept& node : options_.rounds.kept) {
    terms.push_back({node.leaves, slice(bucket, node.level)});
  }
  return options_.replica->all_reduce(std::move(terms), schedule_.sum_leaves(), slice(bucket, 0));
}

Work GradStore::reduce_over_ranks(int bucket, ReduceOp op) {
  LOCKSTEP_ASSERT(schedule_.sum_leaves() == group_.size(), "one leaf a rank");
  return group_.all_reduce(this->bucket(bucket), op);
}

const float* GradStore::gradient(int param) const {
  return levels_[0].data_ptr<float>() + buckets_.slots[static_cast<size_t>(param)].offset;
}

const float* GradStore::gradient(const plan::Piece& piece) const {
  if (shards_ == nullptr) return gradient(piece.param) + piece.lo;
  return slice(piece.unit, 0).data_ptr<float>() + piece.in_unit -
         shards_->owned(piece.unit, group_.rank()).lo;
}

bool GradStore::slices_in_place() const {
  return shards_ != nullptr && !by_round() && options_.rounds.levels == 1;
}

at::Tensor GradStore::slice(int bucket, int level) const {
  const plan::ElementRange own = shards_->owned(bucket, group_.rank());
  if (slices_in_place()) {
    return levels_[0].narrow(0, buckets_.buckets[static_cast<size_t>(bucket)].offset + own.lo,
                             own.size());
  }
  return slices_[static_cast<size_t>(level)].narrow(0, slice_offset_[static_cast<size_t>(bucket)],
                                                    own.size());
}

const plan::RoundNode& GradStore::node_of(plan::LeafRange leaves) const {
  const auto found = std::find_if(nodes_.begin(), nodes_.end(), [&](const plan::RoundNode& node) {
    return node.leaves == leaves;
  });
  LOCKSTEP_ASSERT(found != nodes_.end(), "the program reduces the nodes of its rounds");
  return *found;
}

int64_t GradStore::heap_bytes() const {
  const auto sent =
      std::count_if(terms_.begin(), terms_.end(), [](const auto& term) { return term.level > 0; });
  return levels_.empty() ? 0 : (1 + sent) * buckets_.numel * width_of(options_.type);
}

int64_t GradStore::scratch_bytes() const {
  const int64_t width = width_of(options_.type);
  int64_t bytes = std::ssize(levels_) * buckets_.numel * width - heap_bytes();
  for (const at::Tensor& level : slices_) bytes += level.numel() * width;
  for (const Use& use : uses_) {
    if (use.side.defined()) bytes += use.side.numel() * width;
  }
  return bytes;
}

at::Tensor GradStore::on_level(int level, int bucket) const {
  const plan::Bucket& range = buckets_.buckets[static_cast<size_t>(bucket)];
  return levels_[static_cast<size_t>(level)].narrow(0, range.offset, range.numel);
}

at::Tensor GradStore::slot_view(int level, int param) const {
  const plan::Slot& slot = buckets_.slots[static_cast<size_t>(param)];
  return levels_[static_cast<size_t>(level)]
      .narrow(0, slot.offset, slot.numel)
      .view(table_.params[static_cast<size_t>(param)].shape);
}

}  // namespace lockstep::state
