// What the ledgers of a rank's groups count in one step: the sum over its program's collectives.
#include "lockstep/plan/collective_steps.h"
#include "lockstep/plan/step_program.h"
#include "lockstep/plan/sum_plan.h"

namespace lockstep::plan {
namespace {

constexpr int64_t kElementBytes = 4;  // parameters and gradients travel in fp32
constexpr int64_t kSumBytes = 8;      // losses and squares in fp64; ratios have two each

class StepBytes {
 public:
  StepBytes(const StepInputs& inputs, int rank)
      : inputs_(inputs),
        rank_(rank),
        ranks_(inputs.shards.options.ranks),
        shard_(rank % inputs.shards.options.ranks) {}

  void add(const Step& step) {
    const ShardLayout& shards = inputs_.shards;
    switch (step.op) {
      case StepOp::reduce:
        if (!shards.sharded()) {
          const Bucket& bucket = inputs_.buckets.buckets[static_cast<size_t>(step.bucket)];
          bytes_.dp += all_reduce(inputs_.algorithms, reduce_plan(inputs_), rank_, bucket.numel,
                                  kElementBytes);
        } else {
          bytes_.shard +=
              reduce_scatter(node_plan(inputs_, rank_, step.node), shards.counts(step.bucket));
        }
        return;
      case StepOp::across: {
        std::vector<std::vector<LeafRange>> kept;
        for (int replica = 0; replica < shards.options.replicas; ++replica) {
          std::vector<LeafRange>& nodes = kept.emplace_back();
          const LeafRounds rounds = leaf_rounds(inputs_, replica * ranks_);
          for (const LeafRounds::Kept& node : rounds.kept) nodes.push_back(node.leaves);
        }
        bytes_.replica += all_reduce({}, plan_sum(inputs_.batch.sum_leaves(), kept), rank_ / ranks_,
                                     shards.owned(step.bucket, shard_).size(), kElementBytes);
        return;
      }
      case StepOp::gather:
        bytes_.gather += all_gather(shards.counts(step.unit), kElementBytes) +
                         all_gather(shards.counts(step.unit, /*trained=*/false), kElementBytes);
        return;
      case StepOp::publish:
        bytes_.gather += all_gather(shards.counts(step.bucket), kElementBytes);
        return;
      case StepOp::loss: {
        std::vector<std::vector<LeafRange>> terms;
        for (int r = 0; r < inputs_.leaves.ranks; ++r) {
          terms.push_back(inputs_.leaves.terms_of(r));
        }
        if (inputs_.part) {
          // As long as terms are few they travel with the call: each rank reads those of others.
          terms.emplace_back();
          const int place = inputs_.part->has_losses ? rank_ : inputs_.leaves.ranks;
          bytes_.all +=
              all_reduce_bytes(plan_sum(inputs_.batch.sum_leaves(), terms), place, 1, kSumBytes);
          return;
        }
        bytes_.dp += all_reduce(inputs_.algorithms, plan_sum(inputs_.batch.sum_leaves(), terms),
                                rank_, 1, kSumBytes);
        return;
      }
      case StepOp::norm:
        if (inputs_.part) {
          bytes_.model += direct_all_gather_bytes(inputs_.part->model_rank,
                                                  inputs_.part->norm.counts(), kSumBytes);
          return;
        }
        if (!shards.sharded()) return;
        bytes_.shard += all_gather(plan_norm(inputs_.table, shards).counts(), kSumBytes);
        return;
      case StepOp::ratios:
        if (inputs_.part) {
          bytes_.model += direct_all_gather_bytes(inputs_.part->model_rank,
                                                  inputs_.part->ratios.counts(), 2 * kSumBytes);
          return;
        }
        if (!shards.sharded()) return;
        bytes_.shard += all_gather(
            plan_norm(inputs_.table, shards, NormSums::by_parameter).counts(), 2 * kSumBytes);
        return;
      case StepOp::recv_forward:
      case StepOp::recv_backward:
        bytes_.pp += inputs_.part->message_bytes + kMessageHeaderBytes;
        return;
      case StepOp::tie: {
        const Param& param = inputs_.table.params[static_cast<size_t>(step.param)];
        if (param.elsewhere.empty()) return;
        // The first stage is rank 0 of the two; uses are added in name order.
        const int own = inputs_.stage == 0 ? 0 : 1;
        const int place = param.uses[0] < param.elsewhere[0] ? 0 : 1;
        std::vector<std::vector<LeafRange>> terms(2);
        terms[static_cast<size_t>(own)] = {{place, place + 1}};
        terms[static_cast<size_t>(1 - own)] = {{1 - place, 2 - place}};
        bytes_.tie += inputs_.leaves.context_of(rank_).size() *
                      all_reduce_bytes(plan_sum(2, terms), own, param.numel, kElementBytes);
        return;
      }
      case StepOp::forward:
        if (inputs_.part && !inputs_.part->tensor_bytes.empty()) {
          bytes_.tp += inputs_.part->tensor_bytes[static_cast<size_t>(step.chunk)];
        }
        if (!inputs_.context_bytes.empty()) {
          bytes_.cp += inputs_.context_bytes[static_cast<size_t>(step.chunk)];
        }
        return;
      default:
        return;
    }
  }

  const GroupBytes& sum() const { return bytes_; }

 private:
  int64_t all_reduce(const AlgorithmTable& table, const SumPlan& sum, int place, int64_t count,
                     int64_t width) const {
    const Algorithm algorithm = table.choose(Collective::all_reduce, count * width);
    if (algorithm == Algorithm::direct && !inputs_.sends_messages) {
      return all_reduce_bytes(sum, place, count, width);
    }
    if (!ranks_are_leaves(sum)) return bytes_received(plan_all_reduce(sum, count), place, width);
    return bytes_received(algorithm == Algorithm::hierarchical
                              ? plan_hierarchical_all_reduce(table.hosts, count)
                              : plan_all_reduce(algorithm, sum.ranks, count),
                          place, width);
  }

  int64_t reduce_scatter(const SumPlan& sum, const std::vector<int64_t>& counts) const {
    if (!inputs_.sends_messages) {
      return direct_reduce_scatter_bytes(sum, shard_, counts, kElementBytes);
    }
    return bytes_received(ranks_are_leaves(sum) ? plan_reduce_scatter(Algorithm::direct, counts)
                                                : plan_reduce_scatter(sum, counts),
                          shard_, kElementBytes);
  }

  int64_t all_gather(const std::vector<int64_t>& counts, int64_t width) const {
    return direct_all_gather_bytes(shard_, counts, width);
  }

  const StepInputs& inputs_;
  int rank_;
  int ranks_;
  int shard_;
  GroupBytes bytes_;
};

}  // namespace

int64_t GroupBytes::of(const std::string& group) const {
  if (group == "dp") return dp;
  if (group == "shard") return shard;
  if (group == "gather") return gather;
  if (group == "tp") return tp;
  if (group == "cp") return cp;
  if (group == "pp") return pp;
  if (group == "tie") return tie;
  if (group == "model") return model;
  if (group == "all") return all;
  return group == "replica" ? replica : 0;
}

GroupBytes planned_bytes(const StepInputs& inputs, int rank) {
  StepBytes bytes(inputs, rank);
  for (const Step& step : step_program(inputs, rank).steps) bytes.add(step);
  return bytes.sum();
}

int64_t forward_bytes(const StepInputs& inputs, int rank) {
  StepBytes bytes(inputs, rank);
  for (const UnitStep& step : forward_units(inputs.shards, false)) {
    if (step.op == UnitStep::Op::gather) bytes.add(step_of(step));
  }
  return bytes.sum().gather;
}

}  // namespace lockstep::plan
