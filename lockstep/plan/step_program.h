/// One optimizer step of one rank, as a list of operations. Printed, proven, executed by
/// train/StepRunner, and compared with what the ledger counted.
///
///   rank 0 of 2, 4 leaves, 2 buckets, nothing sharded:
///     forward 0.0  backward 0.0  fold b0 l0  fold b1 l0
///     forward 1.0  backward 1.0  fold b0 l1  reduce b0  fold b1 l1  reduce b1
///     loss  norm  update
///
///   the same with zero3, a root and two layers, prefetch 1, first round:
///     forward 0.0   gather u2  touch u2  gather u1  touch u1  gather u0  touch u0  release u1
///     backward 0.0  gather u1  touch u0  reduce b0 (0,2)  touch u1  release u0  reduce b1 (0,2)
///                   settle b0 (0,2)  ...  release u1  release u2
///
///   stage 1 of 2, 1F1B, 2 leaves, nothing sharded (plan/pipeline_schedule.h):
///     recv_forward 0.0  forward 0.0   backward 0.0  send_backward 0.0  complete l0  fold b0 l0
///     recv_forward 1.0  forward 1.0   backward 1.0  send_backward 1.0  complete l1  fold b0 l1
///     reduce b0  loss  norm  update
///
/// In a pipeline the operations are done in turn; receives and awaited sums wait. Else:
/// operations between a forward or a backward and the next one belong to it: they may start while
/// it runs. Those on units start in the order of the list among themselves, and so do folds and
/// reductions: each kind has a group of its own, so all ranks issue the same collectives of a group
/// in the same order. A rank without a leaf in a round (a phantom round) has the round's operations
/// on units and its reductions, in turn, without forward and backward.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/plan/algorithm_table.h"
#include "lockstep/plan/batch_plan.h"
#include "lockstep/plan/buckets.h"
#include "lockstep/plan/leaf_rounds.h"
#include "lockstep/plan/norm_plan.h"
#include "lockstep/plan/optimizers.h"
#include "lockstep/plan/pipeline_schedule.h"
#include "lockstep/plan/shard_layout.h"

namespace lockstep::plan {

enum class StepOp {
  forward,        // chunk, leaf, micro
  backward,       // chunk, leaf, micro
  weight,         // chunk, leaf, micro: the gradients of weights that its backward left
  send_forward,   // chunk, leaf, micro: the result goes to the next piece of the model
  recv_forward,   // chunk, leaf, micro: what the piece before gave
  send_backward,  // chunk, leaf, micro: the gradient of the input goes back
  recv_backward,  // chunk, leaf, micro: the gradient of the result
  complete,       // chunk, leaf: no gradient of the leaf is owed any more
  tie,            // param, leaf: uses in other pieces of the model and these meet
  phantom,        // a round without a leaf for this rank begins: collectives only
  gather,         // unit: its parameters are brought together from all shards
  touch,          // unit: what follows on units waits until the computation has come to it
  release,        // unit: its gathered parameters are freed
  fold_use,       // param, leaf: gradients of a tied parameter's uses are added, in name order
  fold,           // bucket, leaf: the leaf's gradients of this bucket join the rank's partial sums
  reduce,         // bucket, node: partial sums of all ranks meet, in the order of the sum tree
  settle,         // bucket, node: the owner's slice of the sum joins those before it
  across,         // bucket: the sums of all replicas meet
  loss,           // the leaves' losses meet
  norm,           // all reductions are complete; the gradient's norm is taken
  ratios,         // norms of each parameter and of its update are taken, where the optimizer asks
  update,         // the optimizer
  publish,        // bucket: every rank gets the updated parameters of all shards
};

struct Step {
  StepOp op;
  int chunk = 0;
  int leaf = -1;
  int micro = -1;
  int bucket = -1;
  int param = -1;
  int unit = -1;
  LeafRange node = {};  // empty: all leaves
  bool operator==(const Step&) const = default;
};

/// What is done with a unit, as an operation of a program.
Step step_of(const UnitStep& step);

struct StepProgram {
  int rank = 0;
  std::vector<Step> steps;
};

/// Bytes that travel before each activation or gradient between stages: type and sizes.
inline constexpr int64_t kMessageHeaderBytes = 72;

/// Of a model that ranks hold parts of: what a rank's step moves beside its data-parallel groups.
struct PartTraffic {
  NormPlan norm;         // over the ranks that together hold a replica, of which this is
  NormPlan ratios = {};  // the same for each parameter, where the optimizer asks
  int model_rank = 0;
  bool has_losses = true;
  int64_t message_bytes = 0;  // of a micro-batch's activation between stages
  /// By chunk: of its forward and backward, among the ranks that share its layers.
  std::vector<int64_t> tensor_bytes = {};
};

/// Everything the programs of all ranks are made of.
struct StepInputs {
  BatchPlan batch;
  LeafSchedule leaves;
  BucketPlan buckets;
  ParamTable table;
  ShardLayout shards = {};
  bool overlap = true;  // false: every reduce comes after the backward
  /// How each reduce is carried out, where its algorithm takes the terms; else by direct messages.
  AlgorithmTable algorithms = {};
  /// Direct reduces are messages too; else one pass over shared memory.
  bool sends_messages = false;
  /// Of a pipeline: the schedule of each data-parallel rank's stream of micro-batches, and this
  /// stage. Empty: the model is not cut.
  std::vector<PipelineSchedule> schedules = {};
  int stage = 0;
  std::optional<PartTraffic> part = {};
  /// By chunk: what a micro-batch moves among the ranks that divide its sequences.
  std::vector<int64_t> context_bytes = {};
  Optimizer optimizer = Optimizer::adamw;

  bool pipelined() const { return !schedules.empty(); }
  /// Leaves have gradient buffers of their own: the next begins before the weights of the one
  /// before are done.
  bool leaves_apart() const { return pipelined() && schedules.front().splits_weight; }
};

/// The step of a rank in data parallelism, sharded as `inputs.shards` says.
///
/// none, zero1   leaves in contiguous runs, folded locally, reduced once a step; zero1 to the owner
///               of each slice, who updates it and publishes
/// zero2, zero3  leaves round-robin, each round's reduced to the owners at once
///
/// Before the reduces of a bucket come the folds of the rank's leaves for it.
StepProgram data_parallel_program(const StepInputs& inputs, int rank);

/// The same of a stage of a pipeline. All leaves of the rank go through in one stream; gradients
/// accumulate in ascending order in every schedule. With zero3 the stage's units are gathered at
/// the start and stay.
StepProgram pipeline_program(const StepInputs& inputs, int rank);

/// The one of the two that the inputs ask for.
StepProgram step_program(const StepInputs& inputs, int rank);

/// The terms that all ranks bring to each reduce, where nothing is sharded.
SumPlan reduce_plan(const StepInputs& inputs);

/// The terms that the ranks of `rank`'s replica bring to the reduction of `node`.
SumPlan node_plan(const StepInputs& inputs, int rank, LeafRange node);

/// The rounds in which `rank`'s replica reduces; of zero1 one, with all its leaves.
LeafRounds leaf_rounds(const StepInputs& inputs, int rank);

/// Bytes of one step in the ledger of each of a rank's groups: of peers' memory read and written,
/// or of messages received.
struct GroupBytes {
  int64_t dp = 0;       // reductions where nothing is sharded, and the loss exchange
  int64_t shard = 0;    // reductions to owners, and norms
  int64_t gather = 0;   // parameters
  int64_t replica = 0;  // reductions over replicas
  int64_t tp = 0;       // sums of tensor grains
  int64_t cp = 0;       // keys and values of other parts of the sequence, and their gradients
  int64_t pp = 0;       // activations and their gradients that a stage receives
  int64_t tie = 0;      // uses of a tied parameter on two stages
  int64_t model = 0;    // norms, where ranks hold parts
  int64_t all = 0;      // the loss, the same
  int64_t total() const { return dp + shard + gather + replica + tp + cp + pp + tie + model + all; }
  /// By the group's name; 0 for one that steps do not communicate in.
  int64_t of(const std::string& group) const;
};
GroupBytes planned_bytes(const StepInputs& inputs, int rank);
/// Of `gather` in one forward without backward.
int64_t forward_bytes(const StepInputs& inputs, int rank);

/// "forward 0.0", "reduce b1"...
std::string text(const Step& step);
std::string text(const StepProgram& program);

}  // namespace lockstep::plan
