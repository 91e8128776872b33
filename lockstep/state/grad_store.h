/// All gradient bytes of a rank, and the only place with hooks on autograd.
///
/// Leaves that are folded locally (nothing sharded, zero1) are written to levels, which are flat
/// buffers of all gradients, and merge as plan/leaf_rounds.h says. What is left in the end are the
/// rank's terms, the maximal whole subtrees of what it holds; their levels are in the shared heap,
/// so what a reduction sends is in place and nothing is copied.
///
///   one rank, 4 leaves:   leaf 0 -> level 0    leaf 1 -> level 1, 0 += 1
///                         leaf 2 -> level 1    leaf 3 -> level 2, 1 += 2, 0 += 1
///
/// Leaves that are reduced by round (zero2, zero3): a bucket has a buffer from the first gradient
/// of a leaf until the leaf's sums are with their owners. An owner's slices of the sums make the
/// stack of plan/leaf_rounds.h.
///
/// Within a leaf, micro-batches accumulate in place: `.grad` of each parameter is a view of its
/// slot. The first one of a leaf is a copy (0 + -0.0 would lose the sign). Further uses of a tied
/// parameter have side buffers; `fold_use` adds them in name order.
///
/// In a pipeline a backward is of one piece of the model (BackwardPass::chunk), and a leaf ends
/// when the program says so (`complete`). Where weights' gradients come later than those of inputs,
/// and for a parameter that is used in several pieces, each leaf has a buffer of its own from its
/// first gradient until it is folded or with its owners.
///
/// Where sequences are divided, a parameter has a tensor for each context grain of the rank; each
/// grain of a leaf is a leaf of the sums (plan/batch_plan.h). What is said of a leaf below is done
/// for all its grains here.
///
/// With one leaf a rank and a leaf that its owner begins and ends as it likes, the same store is
/// what DistributedDataParallel stands on (docs/decisions/0004-replicas-on-the-gradient-store.md).
///
/// Holds   4 bytes an element x levels, at least 1, of the flat buffer, + each further use
///                                                               test: GradStore.HoldsAsPlanned
///         by round: the buffers of buckets at work, + levels of this rank's slices
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/plan/batch_plan.h"
#include "lockstep/plan/leaf_rounds.h"
#include "lockstep/plan/shard_layout.h"
#include "lockstep/plan/step_program.h"
#include "lockstep/state/arrivals.h"
#include "lockstep/state/param_store.h"
#include "lockstep/torch_inside/grad_hooks.h"

namespace lockstep::state {

struct GradStoreOptions {
  int micro_batches_per_grain = 1;
  at::ScalarType type = at::kFloat;  // of the parameters and their gradients
  /// Arrivals::Promise::learned or guessed for graphs that run a backward inside backward.
  Arrivals::Promise arrivals = Arrivals::Promise::once;
  /// Who owns which slices; null: nobody, sums go to every rank. Must outlive the store.
  const plan::ShardLayout* shards = nullptr;
  int rank = -1;  // among those of `leaves`; -1: its place in the group
  /// With `shards`: what this rank's replica sums (plan::leaf_rounds), and the ranks that own the
  /// same slices in all replicas.
  plan::LeafRounds rounds = {};
  ProcessGroup* replica = nullptr;
  /// Of a pipeline: leaves have buffers of their own (StepInputs::leaves_apart), and the ranks that
  /// have the other uses of parameters that are tied over stages.
  bool leaves_apart = false;
  ProcessGroup* ties = nullptr;
  /// Whose backward it is, and how it is called: for the error of a gradient outside one.
  std::string owner = "DistributedDataParallel";
  std::string handle = "ddp";
};

/// What a backward is to its leaf.
struct BackwardPass {
  int leaf = 0;
  bool fresh = true;  // the leaf begins: no parameter has a gradient of it yet
  bool clear = true;  // with `fresh`: gradients that are there are dropped, not added to
  bool last = true;   // the leaf ends: buckets become ready
  int chunk = -1;     // of a pipeline: only its parameters; -1: all
};

class GradStore {
 public:
  /// `uses` are the leaf tensors by parameter and use, for each use its context grains on this rank
  /// (empty for a parameter that is not trained); `group` reduces over the ranks of `leaves`, or of
  /// one replica. Allocates; all ranks of the group do so. `table` and `buckets` must outlive the
  /// store.
  GradStore(const plan::ParamTable& table, const plan::BucketPlan& buckets,
            const std::vector<std::vector<at::Tensor>>& uses, ProcessGroup& group,
            const plan::LeafSchedule& leaves, const GradStoreOptions& options);
  GradStore(const ParamStore& params, ProcessGroup& group, const plan::LeafSchedule& leaves,
            int micro_batches_per_grain)
      : GradStore(params.table(), params.buckets(), params.uses(), group, leaves,
                  {.micro_batches_per_grain = micro_batches_per_grain}) {}
  /// With the sharding of `params`, for a step of these inputs.
  GradStore(const ParamStore& params, ProcessGroup& group, const plan::StepInputs& inputs, int rank,
            ProcessGroup* replica = nullptr, ProcessGroup* ties = nullptr);

  /// Called from within backward, in the thread that runs it: all gradients of `bucket` for the
  /// leaf at hand are complete.
  void on_bucket_ready(std::function<void(int bucket)> ready) { ready_ = std::move(ready); }

  /// Told the gradient of each parameter for a leaf of the sums, its uses added, when it is whole
  /// and before it joins any other.
  using SeeLeaf = std::function<void(int param, int leaf, const float* values)>;
  /// Gives what `forget_leaf` takes.
  int on_leaf(SeeLeaf see);
  void forget_leaf(int listener) { see_leaf_.erase(listener); }

  /// The steps from now on have so many micro-batches a leaf. Between steps.
  void set_micro_batches(int micro_batches_per_grain) { last_micro_ = micro_batches_per_grain - 1; }

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

  // Of a pipeline.

  /// A gradient that a backward left for later; the first of its leaf is taken as it is.
  void add_deferred(const at::Tensor& use, int leaf, int micro, const at::Tensor& gradient);
  /// No gradient of `leaf` is owed any more to the parameters of `chunk`: those without one are 0.
  void complete(int chunk, int leaf);
  /// The uses of a parameter that lie in other pieces of the model, on this stage or another, begin
  /// to meet. `fold` and `reduce` of its bucket wait for that.
  void tie(int param, int leaf);

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
  /// Starts the canonical sum of one node of the tree, each rank's slice to its owner. Owners of
  /// slices only.
  [[nodiscard]] Work reduce(int bucket, plan::LeafRange node) {
    return reduce(bucket, node, pass_.leaf);
  }
  /// `leaf` is this rank's of the round; -1: it has none.
  [[nodiscard]] Work reduce(int bucket, plan::LeafRange node, int leaf);
  /// The slice of that sum, whose reduction is awaited here, joins those before it. When no other
  /// one of the bucket is under way, the leaf's buffer is freed.
  void settle(int bucket, plan::LeafRange node);
  /// Starts the sum of this rank's slices over all replicas, when they have settled.
  [[nodiscard]] Work across(int bucket);
  /// With one leaf a rank: the sum or the average over ranks, in any of the types.
  [[nodiscard]] Work reduce_over_ranks(int bucket, ReduceOp op);

  /// The reduced gradient of a trained float32 parameter, where gradients are whole. The address
  /// never changes.
  const float* gradient(int param) const;
  /// The same of a piece that this rank owns.
  const float* gradient(const plan::Piece& piece) const;
  /// This rank's slice of a bucket's sums, where gradients are divided: padding between parameters
  /// holds anything.
  at::Tensor owned(int bucket) const { return slice(bucket, 0); }
  /// The same of any type, in the parameter's shape.
  at::Tensor gradient_tensor(int param) const { return slot_view(0, param); }
  /// All gradients of a bucket, flat, padding between them included.
  at::Tensor bucket(int bucket) const;

  /// The most bytes of leaf buffers that were there at once, by round.
  int64_t most_leaf_bytes() const { return most_leaf_bytes_; }

  /// Bytes held in the shared heap, leaf buffers apart, and in ordinary memory.
  int64_t heap_bytes() const;
  int64_t scratch_bytes() const;

 private:
  struct Use {
    int param;
    int index;        // in Param::uses
    int context;      // grain
    at::Tensor leaf;  // the module's tensor
    at::Tensor side;  // gradient of a further use; undefined for the first
    at::Tensor late;  // what came after the bucket was ready
    int chunk = 0;
    bool filled = false;
  };

  bool by_round() const {
    return shards_ != nullptr && shards_->options.stage >= plan::Shard::zero2;
  }
  bool slices_in_place() const;
  /// Leaves of this bucket have buffers of their own.
  bool is_apart(int bucket) const;
  void make_levels(const plan::LeafRounds& folds);
  void watch(const std::vector<std::vector<at::Tensor>>& uses);
  void gradient_arrived(int index);
  void take_in(Use& use);
  void zero_if_absent(Use& use);
  void bucket_is_ready(int bucket);
  /// The leaf of sums that a grain of `leaf` is.
  int sum_leaf(int leaf, int context) const { return schedule_.sum_leaf(leaf, context); }
  at::Tensor on_level(int level, int bucket) const;
  at::Tensor slot_view(int level, int param) const;
  /// By round: a leaf's gradient of a parameter, in a buffer that is made when it is first asked
  /// for.
  at::Tensor leaf_slot(int param, int leaf);
  void free_leaf_buffer(int bucket, int leaf);
  at::Tensor target_of(const Use& use, int leaf);
  bool in_pass(const Use& use) const { return pass_.chunk < 0 || use.chunk == pass_.chunk; }
  void await_ties(int bucket, int leaf);
  void see_leaf(int bucket, int leaf);
  /// This rank's slice of a bucket's sums, on one level of the stack.
  at::Tensor slice(int bucket, int level) const;
  const plan::RoundNode& node_of(plan::LeafRange leaves) const;

  // Numbers of leaves in what follows are those of sums, but where it says otherwise.

  const plan::ParamTable& table_;
  const plan::BucketPlan& buckets_;
  ProcessGroup& group_;
  GradStoreOptions options_;
  plan::LeafSchedule schedule_;
  plan::LeafRange contexts_;  // of this rank
  int last_micro_;
  std::map<int, plan::RoundNode> places_;      // by leaf: where it is folded
  std::vector<plan::LeafRounds::Kept> terms_;  // and the levels that they are on
  std::vector<at::Tensor> levels_;             // one even without a leaf
  const plan::ShardLayout* shards_;
  std::vector<plan::RoundNode> nodes_;  // of all rounds
  std::vector<at::Tensor> slices_;      // by level: this rank's slices of all buckets
  std::vector<int64_t> slice_offset_;   // of each bucket in a level
  std::map<std::pair<int, int>, at::Tensor> leaf_buffers_;  // by bucket and leaf, while it is there
  std::map<std::pair<int, int>, at::Tensor> leaf_sides_;    // by use and whole leaf: further uses
  std::map<std::pair<int, int>, Work> ties_;                // by parameter and leaf
  std::map<int, std::vector<int>> settled_;  // by bucket: leaves whose sums are with their owners
  int64_t leaf_bytes_ = 0;
  int64_t most_leaf_bytes_ = 0;
  std::map<std::pair<int, plan::LeafRange>, Work> under_way_;  // by bucket and node, until settled
  std::set<std::pair<int, int>> filled_;    // of a pipeline: uses and whole leaves with a gradient
  std::set<std::pair<int, int>> deferred_;  // those with one that came later
  std::vector<Use> uses_;
  std::vector<std::vector<int>> uses_of_bucket_;  // indices in uses_
  std::vector<std::vector<int>> uses_of_param_;   // the same
  Arrivals arrivals_;
  std::function<void(int)> ready_;
  std::map<int, SeeLeaf> see_leaf_;  // by listener
  BackwardPass pass_;
  bool open_ = false;              // a backward is under way
  torch_inside::GradHooks hooks_;  // last: goes first, before what its callbacks use
};

}  // namespace lockstep::state
