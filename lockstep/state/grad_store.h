/// All gradient bytes of a rank, and the only place with hooks on autograd.
///
/// A rank holds a run of leaves, which is a few maximal whole subtrees of the sum tree: its terms.
/// Each term has a buffer in the shared heap. Leaves of a term are folded as a binary counter
/// folds: the first leaf's gradients go straight into the term's buffer, later ones into scratch
/// levels that merge downwards. What a reduction sends is then in place; nothing is copied.
///
///   one rank, 4 leaves:   leaf 0 -> term        leaf 1 -> scratch 0, term += scratch 0
///                         leaf 2 -> scratch 0   leaf 3 -> scratch 1, scratch 0 += scratch 1,
///                                                         term += scratch 0
///
/// Within a leaf, micro-batches accumulate in place: `.grad` of each parameter is a view of its
/// slot. The first one of a leaf is a copy (0 + -0.0 would lose the sign). Further uses of a tied
/// parameter have side buffers; `fold_use` adds them in name order.
///
/// With one leaf a rank and a leaf that its owner begins and ends as it likes, the same store is
/// what DistributedDataParallel stands on (docs/decisions/0004-replicas-on-the-gradient-store.md).
///
/// Holds   4 bytes an element x (terms, at least 1, in the shared heap + scratch levels) of the
///         flat buffer, + each further use                         test: GradStore.HoldsAsPlanned
#pragma once

#include <functional>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/plan/batch_plan.h"
#include "lockstep/state/arrivals.h"
#include "lockstep/state/param_store.h"
#include "lockstep/torch_inside/grad_hooks.h"

namespace lockstep::state {

struct GradStoreOptions {
  int micro_batches_per_grain = 1;
  at::ScalarType type = at::kFloat;  // of the parameters and their gradients
  /// Arrivals::Promise::learned for graphs that run a backward inside backward.
  Arrivals::Promise arrivals = Arrivals::Promise::once;
};

/// What a backward is to its leaf.
struct BackwardPass {
  int leaf = 0;
  bool fresh = true;  // the leaf begins: no parameter has a gradient of it yet
  bool clear = true;  // with `fresh`: gradients that are there are dropped, not added to
  bool last = true;   // the leaf ends: buckets become ready
};

class GradStore {
 public:
  /// `uses` are the leaf tensors by parameter and use (empty for a parameter that is not trained);
  /// `group` reduces over the ranks of `leaves`. Allocates; all ranks of the group do so. `table`
  /// and `buckets` must outlive the store.
  GradStore(const plan::ParamTable& table, const plan::BucketPlan& buckets,
            const std::vector<std::vector<at::Tensor>>& uses, ProcessGroup& group,
            const plan::LeafSchedule& leaves, const GradStoreOptions& options);
  GradStore(const ParamStore& params, ProcessGroup& group, const plan::LeafSchedule& leaves,
            int micro_batches_per_grain)
      : GradStore(params.table(), params.buckets(), params.uses(), group, leaves,
                  {.micro_batches_per_grain = micro_batches_per_grain}) {}

  /// Called from within backward, in the thread that runs it: all gradients of `bucket` for the
  /// leaf at hand are complete.
  void on_bucket_ready(std::function<void(int bucket)> ready) { ready_ = std::move(ready); }

  /// Around each backward: gradients that arrive belong to this leaf and micro-batch. A parameter
  /// that the whole leaf left without a gradient counts as ready, and zero, at the end of the
  /// leaf's last backward. A gradient that arrives outside is refused with a UsageError.
  void begin_backward(const BackwardPass& pass);
  void begin_backward(int leaf, int micro) {
    begin_backward(
        {.leaf = leaf, .fresh = micro == 0, .clear = micro == 0, .last = micro == last_micro_});
  }
  void end_backward();
  /// After an exception: the pass is given up, nothing becomes ready.
  void give_up_backward() { open_ = false; }

  /// The parameter has had no gradient since its leaf began, or it was cleared since.
  bool absent(int param) const;
  /// What came after its bucket was ready; undefined if nothing did. Of the last backward.
  at::Tensor late(int param) const;

  /// Adds the gradients of a tied parameter's uses, in name order, into its slot.
  void fold_use(int param, int leaf);

  /// Joins the leaf's gradients of one bucket to the partial sums of its term.
  void fold(int bucket, int leaf);

  /// Starts the canonical sum of one bucket over all ranks. After its wait, `gradient` is whole.
  [[nodiscard]] Work reduce(int bucket);
  /// With one leaf a rank: the sum or the average over ranks, in any of the types.
  [[nodiscard]] Work reduce_over_ranks(int bucket, ReduceOp op);

  /// The reduced gradient of a trained float32 parameter. The address never changes.
  const float* gradient(int param) const;
  /// The same of any type, in the parameter's shape.
  at::Tensor gradient_tensor(int param) const { return slot_view({.term = 0}, param); }
  /// All gradients of a bucket, flat, padding between them included.
  at::Tensor bucket(int bucket) const;

  /// The terms that this rank brings.
  const std::vector<plan::LeafRange>& terms() const { return terms_; }

  /// Bytes held in the shared heap and in ordinary memory.
  int64_t heap_bytes() const;
  int64_t scratch_bytes() const;

 private:
  struct Use {
    int param;
    int index;        // in Param::uses
    at::Tensor leaf;  // the module's tensor
    at::Tensor side;  // gradient of a further use; undefined for the first
    at::Tensor late;  // what came after the bucket was ready
    bool filled = false;
  };

  /// Where the fold stack puts a leaf, known before the step.
  struct LeafPlace {
    int term = -1;
    int level = 0;   // 0: the term's own buffer
    int merges = 0;  // after it
  };

  void gradient_arrived(int index);
  void take_in(Use& use);
  void settle(Use& use);
  void bucket_is_ready(int bucket);
  const at::Tensor& buffer(const LeafPlace& place) const;
  at::Tensor slot_view(const LeafPlace& place, int param) const;
  at::Tensor target_of(const Use& use) const;

  const plan::ParamTable& table_;
  const plan::BucketPlan& buckets_;
  ProcessGroup& group_;
  GradStoreOptions options_;
  int leaves_;
  int last_micro_;
  std::vector<plan::LeafRange> terms_;
  std::vector<LeafPlace> places_;         // by leaf
  std::vector<at::Tensor> term_buffers_;  // in the shared heap; one even without a term
  std::vector<at::Tensor> scratch_;       // levels 1, 2, ...
  std::vector<Use> uses_;
  std::vector<std::vector<int>> uses_of_bucket_;  // indices in uses_
  std::vector<std::vector<int>> uses_of_param_;   // the same
  Arrivals arrivals_;
  std::function<void(int)> ready_;
  BackwardPass pass_;
  bool open_ = false;              // a backward is under way
  torch_inside::GradHooks hooks_;  // last: goes first, before what its callbacks use
};

}  // namespace lockstep::state
