#include "lockstep/plan/run_layout.h"

#include "lockstep/base/units.h"
#include "lockstep/plan/pipeline_csv.h"
#include "lockstep/plan/pipeline_schedule.h"

namespace lockstep::plan {
namespace {

int pieces_of_stage(const TrainConfig& config) {
  return config.parallel.schedule == "zero-bubble-v" ? 2 : static_cast<int>(config.parallel.chunks);
}

}  // namespace

Mesh mesh_of(const TrainConfig& config, int world) {
  const auto& parallel = config.parallel;
  const int replicas = static_cast<int>(parallel.replicas);
  const int contexts = static_cast<int>(parallel.context);
  return Mesh({{"replica", replicas},
               {"pp", static_cast<int>(parallel.pipeline)},
               {"shard", data_ranks(config, world) / replicas / contexts},
               {"cp", contexts},
               {"tp", static_cast<int>(parallel.tensor)}});
}

int data_ranks(const TrainConfig& config, int world) {
  return world / static_cast<int>(config.parallel.pipeline * config.parallel.tensor);
}

RankPlace place_in(const TrainConfig& config, int world, int rank) {
  const Mesh mesh = mesh_of(config, world);
  // Without shards the ranks of that axis hold the same.
  const bool sharded = config.parallel.shard != "none";
  const std::vector<std::string> parts = sharded
                                             ? std::vector<std::string>{"pp", "shard", "cp", "tp"}
                                             : std::vector<std::string>{"pp", "tp"};
  const int sequences =
      mesh.index(rank, "replica") * mesh.size("shard") + mesh.index(rank, "shard");
  return {.data = sequences * mesh.size("cp") + mesh.index(rank, "cp"),
          .stage = mesh.index(rank, "pp"),
          .context = mesh.index(rank, "cp"),
          .tensor = mesh.index(rank, "tp"),
          .dp = mesh.group_of(rank, {"replica", "shard", "cp"}),
          .model = mesh.group_of(rank, parts),
          .stages = mesh.group_of(rank, {"pp"}),
          .tp = mesh.group_of(rank, {"tp"}),
          .cp = mesh.group_of(rank, {"cp"})};
}

RankPlace data_place(int world, int rank) {
  RankPlace place{
      .data = rank, .dp = {}, .model = {}, .stages = {rank}, .tp = {rank}, .cp = {rank}};
  for (int r = 0; r < world; ++r) place.dp.push_back(r);
  place.model = place.dp;
  return place;
}

int tensor_grains_of(const TrainConfig& config) {
  const int64_t grains = config.numerics.tensor_grains;
  return static_cast<int>(grains > 0 ? grains : config.parallel.tensor);
}

TensorPlace tensor_place_of(const TrainConfig& config, int tensor_rank) {
  const auto ranks = static_cast<int>(config.parallel.tensor);
  return place_of(tensor_grains_of(config), ranks, tensor_rank,
                  config.parallel.sequence && ranks > 1);
}

int context_grains_of(const TrainConfig& config) {
  const int64_t grains = config.numerics.context_grains;
  return static_cast<int>(grains > 0 ? grains : config.parallel.context);
}

ContextPlace context_place_of(const TrainConfig& config, int context_rank) {
  return context_place(context_grains_of(config), static_cast<int>(config.parallel.context),
                       context_rank);
}

bool is_pipelined(const TrainConfig& config) {
  return config.parallel.pipeline > 1 || pieces_of_stage(config) > 1 ||
         !config.schedule_csv.empty();
}

PipelineSchedule schedule_of(const TrainConfig& config, int micro_batches) {
  const auto& parallel = config.parallel;
  if (!config.schedule_csv.empty()) {
    return parse_pipeline_csv(config.schedule_csv, parallel.schedule);
  }
  return plan_pipeline({.schedule = parallel.schedule,
                        .stages = static_cast<int>(parallel.pipeline),
                        .chunks = pieces_of_stage(config),
                        .micro_batches = micro_batches});
}

std::vector<ModelChunk> chunks_of(const TrainConfig& config, int stage) {
  const PipelineSchedule shape = schedule_of(config, 0);
  const std::vector<ModelChunk> pieces = cut_layers(
      config.model.layers, shape.stages * shape.chunks, parse_stage_sizes(config.parallel.stages));
  std::vector<ModelChunk> chunks;
  for (int chunk = 0; chunk < shape.chunks; ++chunk) {
    chunks.push_back(pieces[static_cast<size_t>(shape.virtual_stage(stage, chunk))]);
  }
  return chunks;
}

BatchPlan batch_of(const TrainConfig& config) {
  BatchPlan batch = plan_batch(config.data.global_batch, config.data.micro_batch,
                               static_cast<int>(config.numerics.grains));
  batch.context_grains = context_grains_of(config);
  return batch;
}

ShardOptions shard_options_of(const TrainConfig& config, int ranks) {
  const auto& parallel = config.parallel;
  const Shard stage = parse_shard(parallel.shard);
  const auto replicas = static_cast<int>(parallel.replicas);
  return {.stage = stage,
          .ranks = stage == Shard::none ? 1 : ranks / replicas,
          .replicas = replicas,
          .prefetch = static_cast<int>(parallel.prefetch),
          // Many micro-batches are under way in a pipeline: its units stay for the step.
          .reshard = is_pipelined(config) ? Reshard::never
                                          : parse_reshard(parallel.reshard_after_forward)};
}

LeafSchedule leaves_of(const TrainConfig& config, int ranks) {
  const ShardOptions shard = shard_options_of(config, ranks);
  const auto contexts = static_cast<int>(config.parallel.context);
  return divided_leaves(plan_leaves(batch_of(config).grains, ranks / contexts,
                                    shard.stage >= Shard::zero2 ? LeafAssignment::round_robin
                                                                : LeafAssignment::contiguous,
                                    shard.replicas),
                        context_grains_of(config), contexts);
}

void set_pipeline(StepInputs& inputs, const TrainConfig& config, int stage) {
  if (!is_pipelined(config)) return;
  inputs.stage = stage;
  for (int rank = 0; rank < inputs.leaves.ranks; ++rank) {
    const auto leaves = static_cast<int>(inputs.leaves.leaves_of(rank).size());
    inputs.schedules.push_back(schedule_of(config, leaves * inputs.batch.micro_batches_per_grain));
  }
}

StepInputs step_inputs_of(const TrainConfig& config, const ParamTable& table, int ranks,
                          int stage) {
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
  inputs.optimizer = parse_optimizer(config.optim.name);
  set_pipeline(inputs, config, stage);
  return inputs;
}

}  // namespace lockstep::plan
