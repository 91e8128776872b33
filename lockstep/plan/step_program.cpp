#include "lockstep/plan/step_program.h"

#include "lockstep/base/assert.h"
#include "lockstep/base/str.h"
#include "lockstep/plan/detail/program_parts.h"

namespace lockstep::plan {

void fold_uses(const StepInputs& inputs, int bucket, int leaf, std::vector<Step>& steps) {
  for (const int param : inputs.buckets.buckets[static_cast<size_t>(bucket)].params) {
    if (inputs.table.params[static_cast<size_t>(param)].uses.size() < 2) continue;
    steps.push_back({.op = StepOp::fold_use, .leaf = leaf, .param = param});
  }
}

int num_buckets(const StepInputs& inputs) {
  return static_cast<int>(inputs.buckets.buckets.size());
}

std::vector<LeafRange> folded_nodes(const StepInputs& inputs, int rank) {
  if (!inputs.shards.sharded()) return {{}};
  std::vector<LeafRange> nodes;
  const LeafRounds sums = leaf_rounds(inputs, rank);
  for (const RoundNode& node : sums.rounds[0]) nodes.push_back(node.leaves);
  return nodes;
}

namespace {

void on_units(const std::vector<UnitStep>& units, std::vector<Step>& steps) {
  for (const UnitStep& step : units) steps.push_back(step_of(step));
}

/// Leaves in contiguous runs, folded locally, reduced after the last.
void folded_locally(const StepInputs& inputs, int rank, std::vector<Step>& steps) {
  const int buckets = num_buckets(inputs);
  const LeafRange run = inputs.leaves.run_of(rank);
  const bool reduce_at_once = inputs.overlap && run.size() > 0;
  const std::vector<LeafRange> nodes = folded_nodes(inputs, rank);
  const auto reduce = [&](int bucket) {
    for (const LeafRange node : nodes) {
      steps.push_back({.op = StepOp::reduce, .bucket = bucket, .node = node});
    }
  };
  for (int leaf = run.lo; leaf < run.hi; ++leaf) {
    for (int micro = 0; micro < inputs.batch.micro_batches_per_grain; ++micro) {
      steps.push_back({.op = StepOp::forward, .leaf = leaf, .micro = micro});
      steps.push_back({.op = StepOp::backward, .leaf = leaf, .micro = micro});
    }
    for (int bucket = 0; bucket < buckets; ++bucket) {
      fold_uses(inputs, bucket, leaf, steps);
      steps.push_back({.op = StepOp::fold, .leaf = leaf, .bucket = bucket});
      if (leaf + 1 == run.hi && reduce_at_once) reduce(bucket);
    }
  }
  for (int bucket = 0; bucket < buckets && !reduce_at_once; ++bucket) reduce(bucket);
}

/// Reductions of a round: a bucket's leaf buffer is given back when the next bucket's reductions
/// have begun.
class RoundReductions {
 public:
  RoundReductions(const StepInputs& inputs, const std::vector<RoundNode>& nodes, int leaf,
                  std::vector<Step>& steps)
      : inputs_(inputs), nodes_(nodes), leaf_(leaf), steps_(steps) {}

  void reduce(int bucket) {
    if (leaf_ >= 0) fold_uses(inputs_, bucket, leaf_, steps_);
    for (const RoundNode& node : nodes_) {
      steps_.push_back({.op = StepOp::reduce, .bucket = bucket, .node = node.leaves});
    }
    settle();
    open_ = bucket;
  }

  void settle() {
    if (open_ < 0) return;
    for (const RoundNode& node : nodes_) {
      steps_.push_back({.op = StepOp::settle, .bucket = open_, .node = node.leaves});
    }
    open_ = -1;
  }

 private:
  const StepInputs& inputs_;
  const std::vector<RoundNode>& nodes_;
  int leaf_;  // -1: a phantom round
  std::vector<Step>& steps_;
  int open_ = -1;  // the bucket whose reductions are under way
};

/// Leaves in turn: every round's are reduced to the owners while its backward runs. A unit's
/// reductions stand behind its use, which is where they can start.
void reduced_by_round(const StepInputs& inputs, int rank, std::vector<Step>& steps) {
  const int buckets = num_buckets(inputs);
  const int micro_batches = inputs.batch.micro_batches_per_grain;
  const std::vector<Round> rounds = inputs.leaves.rounds_of(rank, micro_batches);
  const LeafRounds sums = leaf_rounds(inputs, rank);
  for (size_t r = 0; r < rounds.size(); ++r) {
    const Round round = rounds[r];
    const auto compute = [&](StepOp op) {
      if (!round.phantom()) {
        steps.push_back({.op = op, .leaf = round.leaf, .micro = round.micro});
      }
    };
    if (round.phantom()) steps.push_back({.op = StepOp::phantom});
    compute(StepOp::forward);
    on_units(forward_units(inputs.shards, true), steps);
    compute(StepOp::backward);
    const bool last_micro = (static_cast<int>(r) + 1) % micro_batches == 0;
    RoundReductions reductions(inputs, sums.rounds[r / static_cast<size_t>(micro_batches)],
                               round.leaf, steps);
    int reduced = 0;
    const auto reduce_below = [&](int end) {
      for (; last_micro && reduced < end; ++reduced) reductions.reduce(reduced);
    };
    for (const UnitStep& step : backward_units(inputs.shards)) {
      // When a unit is freed its gradients are there, and so are those of units before it.
      const int bucket = inputs.shards.units[static_cast<size_t>(step.unit)].bucket;
      if (inputs.overlap && step.op == UnitStep::Op::release && step.unit != inputs.shards.root()) {
        reduce_below(bucket + 1);
      }
      on_units({step}, steps);
    }
    reduce_below(buckets);
    if (last_micro) reductions.settle();
  }
}

}  // namespace

Step step_of(const UnitStep& step) {
  switch (step.op) {
    case UnitStep::Op::gather:
      return {.op = StepOp::gather, .unit = step.unit};
    case UnitStep::Op::touch:
      return {.op = StepOp::touch, .unit = step.unit};
    case UnitStep::Op::release:
      break;
  }
  return {.op = StepOp::release, .unit = step.unit};
}

void end_of_step(const StepInputs& inputs, std::vector<Step>& steps) {
  const ShardLayout& shards = inputs.shards;
  for (int bucket = 0; bucket < num_buckets(inputs) && shards.options.replicas > 1; ++bucket) {
    steps.push_back({.op = StepOp::across, .bucket = bucket});
  }
  steps.push_back({.op = StepOp::loss});
  steps.push_back({.op = StepOp::norm});
  if (traits_of(inputs.optimizer).has_ratios) steps.push_back({.op = StepOp::ratios});
  steps.push_back({.op = StepOp::update});
  for (int bucket = 0; bucket < num_buckets(inputs); ++bucket) {
    if (!shards.sharded() || shards.gathers()) break;
    steps.push_back({.op = StepOp::publish, .bucket = bucket});
  }
}

StepProgram data_parallel_program(const StepInputs& inputs, int rank) {
  LOCKSTEP_ASSERT(inputs.leaves.grains == inputs.batch.grains &&
                      inputs.leaves.context_grains == inputs.batch.context_grains,
                  "the schedule hands out the leaves of this batch");
  const ShardLayout& shards = inputs.shards;
  const bool in_turn = shards.options.stage >= Shard::zero2;
  LOCKSTEP_ASSERT(in_turn == (inputs.leaves.assignment == LeafAssignment::round_robin),
                  "leaves that are folded locally are a run, those reduced by round are not");
  StepProgram program{.rank = rank, .steps = {}};
  std::vector<Step>& steps = program.steps;
  if (in_turn) {
    reduced_by_round(inputs, rank, steps);
  } else {
    folded_locally(inputs, rank, steps);
  }
  end_of_step(inputs, steps);
  return program;
}

StepProgram step_program(const StepInputs& inputs, int rank) {
  return inputs.pipelined() ? pipeline_program(inputs, rank) : data_parallel_program(inputs, rank);
}

SumPlan reduce_plan(const StepInputs& inputs) {
  std::vector<std::vector<LeafRange>> terms_by_rank;
  for (int rank = 0; rank < inputs.leaves.ranks; ++rank) {
    terms_by_rank.push_back(inputs.leaves.terms_of(rank));
  }
  return plan_sum(inputs.batch.sum_leaves(), terms_by_rank);
}

LeafRounds leaf_rounds(const StepInputs& inputs, int rank) {
  const int ranks = inputs.shards.options.ranks;
  const LeafRange run = inputs.leaves.run_of_replica(rank / ranks);
  const bool in_turn = inputs.leaves.assignment == LeafAssignment::round_robin;
  return plan_leaf_rounds(inputs.leaves, run,
                          in_turn ? ranks / inputs.leaves.context_ranks : run.size());
}

SumPlan node_plan(const StepInputs& inputs, int rank, LeafRange node) {
  const int ranks = inputs.shards.options.ranks;
  const int first = rank / ranks * ranks;
  std::vector<std::vector<LeafRange>> terms_by_rank;
  for (int r = first; r < first + ranks; ++r) {
    std::vector<LeafRange>& terms = terms_by_rank.emplace_back();
    if (inputs.leaves.assignment == LeafAssignment::contiguous) {
      for (const LeafRange term : inputs.leaves.terms_of(r)) {
        if (node.contains(term)) terms.push_back(term);
      }
    } else {
      // By round nothing is folded before it is sent.
      for (const LeafRange run : inputs.leaves.sum_runs_of(r)) {
        for (int leaf = run.lo; leaf < run.hi; ++leaf) {
          if (node.contains({leaf, leaf + 1})) terms.push_back({leaf, leaf + 1});
        }
      }
    }
  }
  return plan_sum(inputs.batch.sum_leaves(), terms_by_rank);
}

std::string text(const Step& step) {
  const std::string node =
      step.node.size() > 0 ? base::str(" (", step.node.lo, ",", step.node.hi, ")") : "";
  const std::string chunk = step.chunk > 0 ? base::str(" c", step.chunk) : "";
  const std::string micro = base::str(chunk, " ", step.leaf, ".", step.micro);
  switch (step.op) {
    case StepOp::forward:
      return "forward" + micro;
    case StepOp::backward:
      return "backward" + micro;
    case StepOp::weight:
      return "weight" + micro;
    case StepOp::send_forward:
      return "send_forward" + micro;
    case StepOp::recv_forward:
      return "recv_forward" + micro;
    case StepOp::send_backward:
      return "send_backward" + micro;
    case StepOp::recv_backward:
      return "recv_backward" + micro;
    case StepOp::complete:
      return base::str("complete", chunk, " l", step.leaf);
    case StepOp::tie:
      return base::str("tie p", step.param, " l", step.leaf);
    case StepOp::phantom:
      return "phantom";
    case StepOp::gather:
      return base::str("gather u", step.unit);
    case StepOp::touch:
      return base::str("touch u", step.unit);
    case StepOp::release:
      return base::str("release u", step.unit);
    case StepOp::fold_use:
      return base::str("fold_use p", step.param, " l", step.leaf);
    case StepOp::fold:
      return base::str("fold b", step.bucket, " l", step.leaf);
    case StepOp::reduce:
      return base::str("reduce b", step.bucket, node);
    case StepOp::settle:
      return base::str("settle b", step.bucket, node);
    case StepOp::across:
      return base::str("across b", step.bucket);
    case StepOp::loss:
      return "loss";
    case StepOp::norm:
      return "norm";
    case StepOp::ratios:
      return "ratios";
    case StepOp::update:
      return "update";
    case StepOp::publish:
      return base::str("publish b", step.bucket);
  }
  return {};
}

std::string text(const StepProgram& program) {
  std::string lines = base::str("rank ", program.rank, ":");
  for (const Step& step : program.steps) {
    // A line for each micro-batch, as the order is read: compute, then what follows from it.
    const bool starts_line =
        step.op == StepOp::forward || step.op == StepOp::phantom || step.op == StepOp::loss;
    lines += starts_line || &step == program.steps.data() ? "\n  " : "  ";
    lines += text(step);
  }
  return lines + "\n";
}

}  // namespace lockstep::plan
