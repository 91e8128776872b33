#include "lockstep/plan/step_program.h"

#include "lockstep/base/assert.h"
#include "lockstep/base/str.h"

namespace lockstep::plan {
namespace {

constexpr int64_t kGradientBytes = 4;  // gradients accumulate and travel in fp32
constexpr int64_t kLossBytes = 8;      // the loss is one fp64

Step reduce_of(int bucket) { return {.op = StepOp::reduce, .bucket = bucket}; }

/// The uses of the bucket's tied parameters are added, then the leaf joins the partial sums.
void fold_bucket(const StepInputs& inputs, int bucket, int leaf, std::vector<Step>& steps) {
  for (const int param : inputs.buckets.buckets[static_cast<size_t>(bucket)].params) {
    if (inputs.table.params[static_cast<size_t>(param)].uses.size() < 2) continue;
    steps.push_back({.op = StepOp::fold_use, .leaf = leaf, .param = param});
  }
  steps.push_back({.op = StepOp::fold, .leaf = leaf, .bucket = bucket});
}

}  // namespace

StepProgram data_parallel_program(const StepInputs& inputs, int rank) {
  LOCKSTEP_ASSERT(inputs.leaves.assignment == LeafAssignment::contiguous,
                  "leaves are folded locally, so a rank holds a run of them");
  LOCKSTEP_ASSERT(inputs.leaves.grains == inputs.batch.grains,
                  "the schedule hands out the leaves of this batch");
  const int buckets = static_cast<int>(inputs.buckets.buckets.size());
  const int micro_batches = inputs.batch.micro_batches_per_grain;
  const LeafRange run = inputs.leaves.run_of(rank);
  const bool reduce_at_once = inputs.overlap && run.size() > 0;

  StepProgram program{.rank = rank, .steps = {}};
  std::vector<Step>& steps = program.steps;
  for (int leaf = run.lo; leaf < run.hi; ++leaf) {
    for (int micro = 0; micro < micro_batches; ++micro) {
      steps.push_back({.op = StepOp::forward, .leaf = leaf, .micro = micro});
      steps.push_back({.op = StepOp::backward, .leaf = leaf, .micro = micro});
    }
    const bool last_leaf = leaf + 1 == run.hi;
    for (int bucket = 0; bucket < buckets; ++bucket) {
      fold_bucket(inputs, bucket, leaf, steps);
      if (last_leaf && reduce_at_once) steps.push_back(reduce_of(bucket));
    }
  }
  if (!reduce_at_once) {
    for (int bucket = 0; bucket < buckets; ++bucket) steps.push_back(reduce_of(bucket));
  }
  steps.push_back({.op = StepOp::loss});
  steps.push_back({.op = StepOp::norm});
  steps.push_back({.op = StepOp::update});
  return program;
}

SumPlan reduce_plan(const StepInputs& inputs) {
  std::vector<std::vector<LeafRange>> terms_by_rank;
  for (int rank = 0; rank < inputs.leaves.ranks; ++rank) {
    terms_by_rank.push_back(maximal_subtrees(inputs.batch.grains, inputs.leaves.run_of(rank)));
  }
  return plan_sum(inputs.batch.grains, terms_by_rank);
}

namespace {

CollectivePlan message_plan(const StepInputs& inputs, const SumPlan& sum, Algorithm algorithm,
                            int64_t count) {
  if (!ranks_are_leaves(sum)) return plan_all_reduce(sum, count);
  if (algorithm != Algorithm::hierarchical) return plan_all_reduce(algorithm, sum.ranks, count);
  return plan_hierarchical_all_reduce(inputs.algorithms.hosts, count);
}

}  // namespace

int64_t planned_bytes(const StepInputs& inputs, int rank) {
  const SumPlan sum = reduce_plan(inputs);
  const auto bytes_of = [&](int64_t count, int64_t bytes_per_element) {
    const Algorithm algorithm =
        inputs.algorithms.choose(Collective::all_reduce, count * bytes_per_element);
    if (algorithm == Algorithm::direct && !inputs.sends_messages) {
      return all_reduce_bytes(sum, rank, count, bytes_per_element);
    }
    return bytes_received(message_plan(inputs, sum, algorithm, count), rank, bytes_per_element);
  };
  int64_t bytes = bytes_of(1, kLossBytes);
  for (const Bucket& bucket : inputs.buckets.buckets) {
    bytes += bytes_of(bucket.numel, kGradientBytes);
  }
  return bytes;
}

std::string text(const Step& step) {
  switch (step.op) {
    case StepOp::forward:
      return base::str("forward ", step.leaf, ".", step.micro);
    case StepOp::backward:
      return base::str("backward ", step.leaf, ".", step.micro);
    case StepOp::fold_use:
      return base::str("fold_use p", step.param, " l", step.leaf);
    case StepOp::fold:
      return base::str("fold b", step.bucket, " l", step.leaf);
    case StepOp::reduce:
      return base::str("reduce b", step.bucket);
    case StepOp::loss:
      return "loss";
    case StepOp::norm:
      return "norm";
    case StepOp::update:
      return "update";
  }
  return {};
}

std::string text(const StepProgram& program) {
  std::string lines = base::str("rank ", program.rank, ":");
  for (const Step& step : program.steps) {
    // A line for each micro-batch, as the order is read: compute, then what follows from it.
    const bool starts_line = step.op == StepOp::forward || step.op == StepOp::loss;
    lines += starts_line || &step == program.steps.data() ? "\n  " : "  ";
    lines += text(step);
  }
  return lines + "\n";
}

}  // namespace lockstep::plan
