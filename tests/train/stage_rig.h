/// The state of one stage of a pipeline around any module, on ranks that are all its stages: steps
/// by the real StepRunner, with samples and computing of the test's own.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lockstep/comm/process_group.h"
#include "lockstep/train/data_groups.h"
#include "lockstep/train/model_state.h"

namespace lockstep::testing {

class StageRig {
 public:
  /// One leaf a grain of `batch`, all on this pipeline; parameters start as ones.
  StageRig(const std::shared_ptr<net::Group>& group, torch::nn::Module& module,
           const plan::BatchPlan& batch, plan::PipelineOptions pipeline,
           const std::function<int(const std::string& path)>& chunk_of) {
    const int stage = group->rank();
    context.world = std::make_shared<ProcessGroup>(group);
    plan::RankPlace place{
        .stage = stage, .dp = {stage}, .model = {}, .stages = {}, .tp = {stage}, .cp = {stage}};
    for (int rank = 0; rank < group->size(); ++rank) place.stages.push_back(rank);
    place.model = place.stages;
    pipeline.stages = group->size();
    pipeline.micro_batches = batch.grains * batch.micro_batches_per_grain;
    plan::StepInputs inputs;
    inputs.batch = batch;
    inputs.leaves = plan::plan_leaves(batch.grains, 1, plan::LeafAssignment::contiguous);
    inputs.stage = stage;
    inputs.schedules = {plan::plan_pipeline(pipeline)};
    make_groups(context, {}, place);
    const plan::PipelineSchedule& shape = inputs.schedules.front();
    const auto messages = std::make_shared<StageMessages>(*context.world, place.stages, shape);
    state_ = std::make_unique<ModelState>(
        module, std::vector<plan::Tie>(),
        [](const std::string&) { return plan::Init{.kind = plan::Init::Kind::ones}; },
        ModelStateOptions{.offload_folder = {},
                          .chunk_of = chunk_of,
                          .messages = messages,
                          .has_losses = shape.stage_of(shape.virtual_stages() - 1) == stage},
        context, inputs);
  }

  ModelState& state() { return *state_; }

  RankContext context;

 private:
  std::unique_ptr<ModelState> state_;
};

}  // namespace lockstep::testing
