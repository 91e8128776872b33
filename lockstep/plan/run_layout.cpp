#include "lockstep/plan/run_layout.h"

#include "lockstep/base/units.h"

namespace lockstep::plan {

BatchPlan batch_of(const TrainConfig& config) {
  return plan_batch(config.data.global_batch, config.data.micro_batch,
                    static_cast<int>(config.numerics.grains));
}

ShardOptions shard_options_of(const TrainConfig& config, int ranks) {
  const auto& parallel = config.parallel;
  const Shard stage = parse_shard(parallel.shard);
  const auto replicas = static_cast<int>(parallel.replicas);
  return {.stage = stage,
          .ranks = stage == Shard::none ? 1 : ranks / replicas,
          .replicas = replicas,
          .prefetch = static_cast<int>(parallel.prefetch),
          .reshard = parse_reshard(parallel.reshard_after_forward)};
}

LeafSchedule leaves_of(const TrainConfig& config, int ranks) {
  const ShardOptions shard = shard_options_of(config, ranks);
  return plan_leaves(
      batch_of(config).grains, ranks,
      shard.stage >= Shard::zero2 ? LeafAssignment::round_robin : LeafAssignment::contiguous,
      shard.replicas);
}

StepInputs step_inputs_of(const TrainConfig& config, const ParamTable& table, int ranks) {
  const auto bytes = [](double mb) { return static_cast<int64_t>(mb * static_cast<double>(MiB)); };
  const ShardOptions shard = shard_options_of(config, ranks);
  StepInputs inputs;
  inputs.batch = batch_of(config);
  inputs.leaves = leaves_of(config, ranks);
  inputs.table = table;
  inputs.buckets =
      shard.stage == Shard::zero3
          ? plan_unit_buckets(table)
          : plan_buckets(table, bytes(config.comm.first_bucket_mb), bytes(config.comm.bucket_mb));
  inputs.shards = plan_shards(table, inputs.buckets, shard);
  inputs.overlap = config.comm.overlap;
  return inputs;
}

}  // namespace lockstep::plan
