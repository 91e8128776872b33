/// One optimizer step of one rank, as a list of operations. Printed, proven, executed by
/// train/StepRunner, and compared with what the ledger counted.
///
///   rank 0 of 2, 4 leaves, 2 buckets:
///     forward 0.0  backward 0.0  fold b0 l0  fold b1 l0
///     forward 1.0  backward 1.0  fold b0 l1  reduce b0  fold b1 l1  reduce b1
///     loss  norm  update
///
/// Operations between a backward and the next forward may start while that backward still runs, as
/// soon as the gradients they need are complete. They start in the order of the list, so all ranks
/// issue the same collectives in the same order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/plan/algorithm_table.h"
#include "lockstep/plan/batch_plan.h"
#include "lockstep/plan/buckets.h"

namespace lockstep::plan {

enum class StepOp {
  forward,   // leaf, micro
  backward,  // leaf, micro
  fold_use,  // param, leaf: gradients of a tied parameter's uses are added, in name order
  fold,      // bucket, leaf: the leaf's gradients of this bucket join the rank's partial sums
  reduce,    // bucket: partial sums of all ranks meet, in the order of the sum tree
  loss,      // the leaves' losses meet
  norm,      // all reductions are complete; the gradient's norm is taken
  update,    // the optimizer
};

struct Step {
  StepOp op;
  int leaf = -1;
  int micro = -1;
  int bucket = -1;
  int param = -1;
  bool operator==(const Step&) const = default;
};

struct StepProgram {
  int rank = 0;
  std::vector<Step> steps;
};

/// Everything the programs of all ranks are made of.
struct StepInputs {
  BatchPlan batch;
  LeafSchedule leaves;
  BucketPlan buckets;
  ParamTable table;
  bool overlap = true;  // false: every reduce comes after the last backward
  /// How each reduce is carried out, where its algorithm takes the terms; else by direct messages.
  AlgorithmTable algorithms = {};
  /// Direct reduces are messages too; else one pass over shared memory.
  bool sends_messages = false;
};

/// Replicated data parallelism: leaves in contiguous runs, folded locally, reduced once a step.
/// Before the reduces of a bucket, the folds of all the rank's leaves for it; a rank without a leaf
/// has reduces only.
StepProgram data_parallel_program(const StepInputs& inputs, int rank);

/// The terms that all ranks bring to each reduce.
SumPlan reduce_plan(const StepInputs& inputs);

/// What the ledger of `rank` counts in all reduces and the loss exchange of one step: bytes of
/// peers' memory read and written, or of messages received.
int64_t planned_bytes(const StepInputs& inputs, int rank);

/// "forward 0.0", "reduce b1"...
std::string text(const Step& step);
std::string text(const StepProgram& program);

}  // namespace lockstep::plan
