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
/// Holds   4 bytes an element x (terms, at least 1, in the shared heap + scratch levels) of the
///         flat buffer, + each further use                         test: GradStore.HoldsAsPlanned
#pragma once

#include <functional>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/plan/batch_plan.h"
#include "lockstep/state/param_store.h"
#include "lockstep/torch_inside/grad_hooks.h"

namespace lockstep::state {

class GradStore {
 public:
  /// `group` reduces over the ranks of `leaves`. Allocates; all ranks of the group do so.
  GradStore(ParamStore& params, ProcessGroup& group, const plan::LeafSchedule& leaves,
            int micro_batches_per_grain);

  /// Called from within backward, in the thread that runs it: all gradients of `bucket` for the
  /// leaf at hand are complete.
  void on_bucket_ready(std::function<void(int bucket)> ready) { ready_ = std::move(ready); }

  /// Around each backward: gradients that arrive belong to this leaf and micro-batch. A parameter
  /// that the whole leaf left without a gradient counts as ready, and zero, at the end of the
  /// leaf's last backward.
  void begin_backward(int leaf, int micro);
  void end_backward();

  /// Adds the gradients of a tied parameter's uses, in name order, into its slot.
  void fold_use(int param, int leaf);

  /// Joins the leaf's gradients of one bucket to the partial sums of its term.
  void fold(int bucket, int leaf);

  /// Starts the canonical sum of one bucket over all ranks. After its wait, `gradient` is whole.
  [[nodiscard]] Work reduce(int bucket);

  /// The reduced gradient of a trained parameter. The address never changes.
  const float* gradient(int param) const;

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
    bool filled = false;
    bool ready = false;
  };

  /// Where the fold stack puts a leaf, known before the step.
  struct LeafPlace {
    int term = -1;
    int level = 0;   // 0: the term's own buffer
    int merges = 0;  // after it
  };

  void gradient_arrived(Use& use);
  void mark_ready(Use& use);
  const at::Tensor& buffer(const LeafPlace& place) const;
  at::Tensor slot_view(const LeafPlace& place, int param) const;
  at::Tensor target_of(const Use& use) const;

  ParamStore& params_;
  ProcessGroup& group_;
  int leaves_;
  int last_micro_;
  std::vector<plan::LeafRange> terms_;
  std::vector<LeafPlace> places_;         // by leaf
  std::vector<at::Tensor> term_buffers_;  // in the shared heap; one even without a term
  std::vector<at::Tensor> scratch_;       // levels 1, 2, ...
  std::vector<Use> uses_;
  std::vector<int> uses_missing_;  // by bucket: uses not ready for the leaf at hand
  std::vector<int> uses_in_bucket_;
  std::function<void(int)> ready_;
  int leaf_ = -1;  // at hand
  int micro_ = -1;
  torch_inside::GradHooks hooks_;  // last: goes first, before what its callbacks use
};

}  // namespace lockstep::state
