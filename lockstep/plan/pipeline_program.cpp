// The program of a stage of a pipeline: its schedule's steps, and what follows from them for
// gradients.
#include <algorithm>
#include <optional>
#include <utility>

#include "lockstep/base/assert.h"
#include "lockstep/plan/detail/program_parts.h"
#include "lockstep/plan/step_program.h"

namespace lockstep::plan {
namespace {

StepOp step_op_of(PipelineOp op) {
  switch (op) {
    case PipelineOp::forward:
      return StepOp::forward;
    case PipelineOp::backward:
      return StepOp::backward;
    case PipelineOp::weight:
      return StepOp::weight;
    case PipelineOp::send_forward:
      return StepOp::send_forward;
    case PipelineOp::recv_forward:
      return StepOp::recv_forward;
    case PipelineOp::send_backward:
      return StepOp::send_backward;
    case PipelineOp::recv_backward:
      break;
  }
  return StepOp::recv_backward;
}

class StageProgram {
 public:
  StageProgram(const StepInputs& inputs, int rank)
      : inputs_(inputs),
        schedule_(inputs.schedules[static_cast<size_t>(rank)]),
        micros_(inputs.batch.micro_batches_per_grain),
        by_round_(inputs.shards.options.stage >= Shard::zero2),
        rounds_(inputs.leaves.rounds_of(rank, micros_)),
        leaves_(inputs.leaves.leaves_of(rank)),
        reduced_(inputs.buckets.buckets.size()) {
    if (inputs.shards.sharded()) sums_ = leaf_rounds(inputs, rank);
    nodes_ = by_round_ ? std::vector<LeafRange>() : folded_nodes(inputs, rank);
  }

  std::vector<Step> steps() {
    for (const int unit : inputs_.shards.forward) {
      if (inputs_.shards.gathers()) steps_.push_back({.op = StepOp::gather, .unit = unit});
    }
    const PipelineOp last_of_leaf =
        schedule_.splits_weight ? PipelineOp::weight : PipelineOp::backward;
    // What a neighbour waits for goes before the sums of the leaf that it ends.
    std::optional<std::pair<int, int>> complete_next;  // chunk, leaf
    for (const PipelineStep& step : schedule_.steps[static_cast<size_t>(inputs_.stage)]) {
      const int leaf = leaves_[static_cast<size_t>(step.micro / micros_)];
      const int micro = step.micro % micros_;
      const bool sends =
          step.op == PipelineOp::send_backward || step.op == PipelineOp::send_forward;
      if (complete_next && !sends) complete(*std::exchange(complete_next, std::nullopt));
      steps_.push_back(
          {.op = step_op_of(step.op), .chunk = step.chunk, .leaf = leaf, .micro = micro});
      if (step.op == last_of_leaf && micro + 1 == micros_) complete_next = {step.chunk, leaf};
    }
    if (complete_next) complete(*complete_next);
    finish();
    return std::move(steps_);
  }

 private:
  const Param& param_of(int bucket) const {
    const int param = inputs_.buckets.buckets[static_cast<size_t>(bucket)].params.front();
    return inputs_.table.params[static_cast<size_t>(param)];
  }

  /// The place of a leaf among the rank's own: the round in which it is reduced.
  size_t round_of(int leaf) const {
    return static_cast<size_t>(std::find(leaves_.begin(), leaves_.end(), leaf) - leaves_.begin());
  }

  void complete(std::pair<int, int> chunk_and_leaf) {
    const auto [chunk, leaf] = chunk_and_leaf;
    steps_.push_back({.op = StepOp::complete, .chunk = chunk, .leaf = leaf});
    for (int bucket = 0; bucket < num_buckets(inputs_); ++bucket) {
      const Param& param = param_of(bucket);
      if (param.is_across || param.chunk() != chunk) continue;
      if (by_round_) {
        reduce_round(bucket, round_of(leaf), leaf);
        continue;
      }
      fold_uses(inputs_, bucket, leaf, steps_);
      steps_.push_back({.op = StepOp::fold, .leaf = leaf, .bucket = bucket});
      if (inputs_.overlap && leaf == leaves_.back()) reduce(bucket);
    }
  }

  /// Both stages come to it when their computing is done: a stage that began earlier would wait in
  /// the middle of it for the other.
  void tie() {
    for (const int leaf : leaves_) {
      for (size_t p = 0; p < inputs_.table.params.size(); ++p) {
        const Param& param = inputs_.table.params[p];
        if (!param.is_across || !param.trainable) continue;
        steps_.push_back({.op = StepOp::tie, .leaf = leaf, .param = static_cast<int>(p)});
      }
    }
  }

  void reduce(int bucket) {
    for (const LeafRange node : nodes_) {
      steps_.push_back({.op = StepOp::reduce, .bucket = bucket, .node = node});
    }
    reduced_[static_cast<size_t>(bucket)] = 1;
  }

  /// The sums of the round before are awaited first: they are where this one's additions go.
  void reduce_round(int bucket, size_t round, int leaf) {
    settle(bucket);
    if (leaf >= 0) fold_uses_of(bucket, leaf);
    for (const RoundNode& node : sums_.rounds[round]) {
      steps_.push_back({.op = StepOp::reduce, .leaf = leaf, .bucket = bucket, .node = node.leaves});
    }
    reduced_[static_cast<size_t>(bucket)] = static_cast<int>(round) + 1;
  }

  void fold_uses_of(int bucket, int leaf) {
    if (!param_of(bucket).is_across) fold_uses(inputs_, bucket, leaf, steps_);
  }

  void settle(int bucket) {
    const int rounds = reduced_[static_cast<size_t>(bucket)];
    if (rounds == 0) return;
    for (const RoundNode& node : sums_.rounds[static_cast<size_t>(rounds - 1)]) {
      steps_.push_back({.op = StepOp::settle, .bucket = bucket, .node = node.leaves});
    }
  }

  /// What waits for other stages comes last, and rounds without a leaf for this rank.
  void finish() {
    for (const bool across : {false, true}) {
      if (across) tie();
      for (int bucket = 0; bucket < num_buckets(inputs_); ++bucket) {
        if (param_of(bucket).is_across != across) continue;
        if (by_round_) {
          const size_t rounds = rounds_.size() / static_cast<size_t>(micros_);
          for (auto round = static_cast<size_t>(reduced_[static_cast<size_t>(bucket)]);
               round < rounds; ++round) {
            reduce_round(bucket, round, round < leaves_.size() ? leaves_[round] : -1);
          }
          settle(bucket);
          continue;
        }
        for (const int leaf : leaves_) {
          if (across) steps_.push_back({.op = StepOp::fold, .leaf = leaf, .bucket = bucket});
        }
        if (reduced_[static_cast<size_t>(bucket)] == 0) reduce(bucket);
      }
    }
    for (const int unit : inputs_.shards.forward) {
      if (inputs_.shards.gathers()) steps_.push_back({.op = StepOp::release, .unit = unit});
    }
    end_of_step(inputs_, steps_);
  }

  const StepInputs& inputs_;
  const PipelineSchedule& schedule_;
  int micros_;
  bool by_round_;
  std::vector<Round> rounds_;
  std::vector<int> leaves_;
  LeafRounds sums_;
  std::vector<LeafRange> nodes_;  // of locally folded leaves
  std::vector<int> reduced_;      // by bucket: rounds whose reductions have begun
  std::vector<Step> steps_;
};

}  // namespace

StepProgram pipeline_program(const StepInputs& inputs, int rank) {
  LOCKSTEP_ASSERT(inputs.pipelined(), "a stage has a schedule");
  return {.rank = rank, .steps = StageProgram(inputs, rank).steps()};
}

}  // namespace lockstep::plan
