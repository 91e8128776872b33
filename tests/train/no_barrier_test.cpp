// Steps that follow each other without the optimizer between them, as zero-bubble schedules are
// meant: no stage waits for the others to end a step. When they would start is the plan's to say:
// spans_without_barrier.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "lockstep/net/world.h"
#include "lockstep/train/synthetic_task.h"
#include "tests/train/stage_rig.h"

namespace lockstep {
namespace {

constexpr int kStages = 2;
constexpr int kMicros = 4;
constexpr int kSteps = 3;

/// The last weight gradient of the last stage waits until the first stage is in the next step.
TEST(NoBarrier, AStageOfAVBeginsItsNextStepBeforeTheOthersEnd) {
  std::atomic<int> begun{0};  // steps, by stage 0
  std::atomic<int> seen{0};   // by stage 1, before the end of the step before
  net::run_on_threads(kStages, [&](const std::shared_ptr<net::Group>& group) {
    const int stage = group->rank();
    const plan::PipelineOptions pipeline{
        .schedule = "zero-bubble-v", .stages = kStages, .chunks = 2, .micro_batches = kMicros};
    const plan::PipelineSchedule shape = plan::plan_pipeline(pipeline);
    const std::vector<plan::ModelChunk> all = plan::cut_layers(4, shape.virtual_stages());
    std::vector<plan::ModelChunk> pieces;
    for (int chunk = 0; chunk < shape.chunks; ++chunk) {
      pieces.push_back(all[static_cast<size_t>(shape.virtual_stage(stage, chunk))]);
    }
    SyntheticTask task({0, 0, 0}, kMicros, pieces);
    testing::StageRig rig(group, task.module(), plan::plan_batch(kMicros, 1, 1), pipeline,
                          [&](const std::string& path) { return task.chunk_of(path); });
    int step = 0;
    const auto next_has_begun = [&] {
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
      while (begun < step + 2 && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      return begun >= step + 2;
    };
    StepCompute compute;
    compute.forward = [&](const plan::Step& op, const at::Tensor& input) {
      if (stage == 0 && op.chunk == 0 && op.micro == 0) begun = step + 1;
      return task.run_chunk(op.chunk, input, {.first = op.micro, .count = 1, .round = {}},
                            rig.context);
    };
    const plan::PipelineStep last = shape.steps[1].back();
    compute.entering = [&](const plan::Step& op) {
      const bool ends =
          op.op == plan::StepOp::weight && op.chunk == last.chunk && op.micro == last.micro;
      if (stage == 1 && ends && step + 1 < kSteps && next_has_begun()) ++seen;
    };
    for (; step < kSteps; ++step) {
      rig.state().runner().begin();
      rig.state().runner().compute(compute, 1.0 / kMicros);
    }
    rig.context.world->barrier();
  });
  EXPECT_EQ(seen, kSteps - 1);
}

}  // namespace
}  // namespace lockstep
