/// The layout that a run's settings ask for: who computes which leaves, and who owns what.
#pragma once

#include <vector>

#include "lockstep/plan/batch_plan.h"
#include "lockstep/plan/context_place.h"
#include "lockstep/plan/mesh.h"
#include "lockstep/plan/model_cut.h"
#include "lockstep/plan/shard_layout.h"
#include "lockstep/plan/step_program.h"
#include "lockstep/plan/tensor_place.h"
#include "lockstep/plan/train_config.h"

namespace lockstep::plan {

BatchPlan batch_of(const TrainConfig& config);

/// The ranks of a job, from outside in: replica pp shard cp tp. Ranks that share a layer follow
/// each other, then those that share a sequence, then those that share a replica's state: the
/// fastest links for those that talk most.
Mesh mesh_of(const TrainConfig& config, int world);
/// Ranks that hold the same part of the model: replica x shard x cp.
int data_ranks(const TrainConfig& config, int world);

/// Where a rank is, and with whom it shares what; ranks of the world, in order.
struct RankPlace {
  int data = 0;  // among the ranks that hold the same part; context ranks follow each other
  int stage = 0;
  int context = 0;
  int tensor = 0;
  std::vector<int> dp;      // those ranks
  std::vector<int> model;   // all that together hold its replica, each other bytes
  std::vector<int> stages;  // the ranks of its pipeline, by stage
  std::vector<int> tp;
  std::vector<int> cp;
};
RankPlace place_in(const TrainConfig& config, int world, int rank);
/// Where no rank holds a part of a model: all are data-parallel.
RankPlace data_place(int world, int rank);

TensorPlace tensor_place_of(const TrainConfig& config, int tensor_rank);
int tensor_grains_of(const TrainConfig& config);
ContextPlace context_place_of(const TrainConfig& config, int context_rank);
int context_grains_of(const TrainConfig& config);

/// The order of a stage's work for a stream of micro-batches.
PipelineSchedule schedule_of(const TrainConfig& config, int micro_batches);
/// Messages between two stages that may be under way before their sender waits.
inline constexpr int kMessagesUnderWay = 1;

/// Whether the model is cut: else a step is what data-parallel ranks do.
bool is_pipelined(const TrainConfig& config);
/// The pieces of the model that a stage holds, by chunk.
std::vector<ModelChunk> chunks_of(const TrainConfig& config, int stage);

/// For `ranks` data-parallel ranks.
ShardOptions shard_options_of(const TrainConfig& config, int ranks);

/// Runs of leaves where they are folded locally, in turn where each round is reduced.
LeafSchedule leaves_of(const TrainConfig& config, int ranks);

/// With a pipeline, gives `inputs`, whose leaves are there, the schedules of `stage`'s ranks.
void set_pipeline(StepInputs& inputs, const TrainConfig& config, int stage);

/// All that the step of a model, or of a stage's part, with these parameters is planned from, for
/// `ranks` data-parallel ranks on one host over shared memory by direct sums.
StepInputs step_inputs_of(const TrainConfig& config, const ParamTable& table, int ranks,
                          int stage = 0);

}  // namespace lockstep::plan
