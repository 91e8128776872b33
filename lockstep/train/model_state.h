/// What one rank holds of a model that is being trained, and the step over it: parameters,
/// gradients, optimizer state, each divided and offloaded as its settings say.
///
/// The order in which they are built is the one of DESIGN: module without storage -> ParamStore
/// (table, layout, start values) -> GradStore (buffers, hooks) -> StepRunner -> optimizer.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/rank_context.h"
#include "lockstep/files/block_file.h"
#include "lockstep/memory/account.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/param_groups.h"
#include "lockstep/plan/offload.h"
#include "lockstep/plan/step_program.h"
#include "lockstep/state/grad_store.h"
#include "lockstep/state/param_store.h"
#include "lockstep/train/detail/square_sums.h"
#include "lockstep/train/param_digest.h"
#include "lockstep/train/replicas.h"
#include "lockstep/train/step_runner.h"
#include "lockstep/train/whole_params.h"

namespace lockstep {

struct ModelStateOptions {
  plan::ShardOptions shard = {};
  plan::Offload offload = {};
  std::string offload_folder;  // where something is offloaded
  int64_t first_bucket_bytes = 1 * MiB;
  int64_t bucket_bytes = 25 * MiB;
  optim::OptimizerOptions optimizer = {};
  std::vector<optim::ParamGroup> groups = {};
  // Of a model that ranks hold parts of (state/param_store.h); not set: it is whole.
  std::function<plan::TensorSlice(const std::string& path)> slice_of = {};
  std::function<int(const std::string& path)> chunk_of = {};
  std::shared_ptr<StageMessages> messages = {};  // of a pipeline
  bool has_losses = true;     // that count: one rank of each pipeline and tensor group has
  int64_t message_bytes = 0;  // of a micro-batch: plan::PartTraffic
  std::vector<int64_t> tensor_bytes = {};
  /// Buffers that are digested and saved with the parameters: whole and alike on all ranks.
  std::vector<NamedTensor> running_values = {};
};

class ModelState {
 public:
  /// `context`, which must outlive this, has the groups that the layout asks for (data_groups.h).
  /// `inputs` holds batch, leaves and what is said of communication; table, buckets and shards are
  /// filled in here. A pipeline whose schedule splits weights off leaves a weight queue in
  /// `context`. What is held is counted in the account of the calling thread.
  ModelState(torch::nn::Module& module, const std::vector<plan::Tie>& ties,
             const std::function<plan::Init(const std::string&)>& init_of,
             const ModelStateOptions& options, RankContext& context, plan::StepInputs inputs);

  const plan::StepInputs& inputs() const { return inputs_; }
  /// The steps from now on are these, which differ in their batch and its schedules alone. Between
  /// steps.
  void set_step(plan::StepInputs inputs);
  state::ParamStore& params() { return *params_; }
  const state::ParamStore& params() const { return *params_; }
  state::GradStore& grads() { return *grads_; }
  StepRunner& runner() { return *runner_; }
  const StepRunner& runner() const { return *runner_; }
  /// What flows through this stage; null: the model is not cut.
  detail::StageFlow* flow() { return flow_.get(); }
  const detail::StageFlow* flow() const { return flow_.get(); }
  StageMessages* messages() { return messages_.get(); }
  const StageMessages* messages() const { return messages_.get(); }
  /// Who holds what; null: every rank of a replica's group holds pieces of the whole.
  const ModelParts* parts() const { return parts_.get(); }

  /// With trust ratios, before `update`: the norms of all parameters. A collective of those who
  /// take the gradient's norm.
  void measure(double grad_scale);
  /// The optimizer takes a step with the reduced gradients.
  void update(double lr, double grad_scale);
  /// Where parameters are whole and updated in shares: every rank gets the others' shares.
  void publish();
  optim::Updater& optimizer() { return *optimizer_; }
  const optim::Updater& optimizer() const { return *optimizer_; }
  /// The logical parameters, for a file that rank 0 of the world writes.
  WholeParams whole() { return {*params_, context_.model.get(), parts_.get(), running_values_}; }
  /// This rank holds a part of what rank 0 of the world writes, and helps with `whole`.
  bool has_saved_replica() const;
  /// Of all parameters and running values, on any layout the same. All ranks of the world call it.
  std::string digest() const {
    return param_digest(*params_, context_, parts_.get(), running_values_);
  }
  /// Of normalised layers: not an optimizer's, but part of what a step changes.
  const std::vector<NamedTensor>& running_values() const { return running_values_; }
  /// "0.5 GiB in /scratch, direct, by io_uring"; empty: nothing is offloaded.
  std::string offload_text() const;

 private:
  void make_runner();
  void make_optimizer(const ModelStateOptions& options);
  void make_streamed(const ModelStateOptions& options);
  void make_ratios();

  RankContext& context_;
  std::vector<NamedTensor> running_values_;
  plan::StepInputs inputs_;
  std::unique_ptr<state::ParamStore> params_;
  std::unique_ptr<state::GradStore> grads_;
  std::unique_ptr<ModelParts> parts_;
  std::shared_ptr<StageMessages> messages_;
  std::unique_ptr<detail::StageFlow> flow_;
  bool has_losses_ = true;
  std::unique_ptr<StepRunner> runner_;
  std::unique_ptr<files::BlockFile> moments_;  // where masters are not in a file
  std::unique_ptr<optim::Updater> optimizer_;
  optim::TrustUpdater* trust_ = nullptr;             // the same, where it has trust ratios
  std::unique_ptr<detail::SquareSums> square_sums_;  // for these
  std::vector<optim::ChunkSums> chunk_sums_;         // in them, by span
  std::optional<memory::Counted> optimizer_bytes_;
};

}  // namespace lockstep
