// The same bits whatever stages a model is cut into, each rank's share, what moved, what is in
// flight.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "lockstep/memory/counting_allocator.h"
#include "lockstep/plan/activation_bytes.h"
#include "lockstep/plan/pipeline_check.h"
#include "lockstep/torch_inside/gemm_counter.h"
#include "tests/train/run_bits.h"
#include "tests/train/tiny_run.h"

namespace lockstep {
namespace {

using testing::Bits;
using testing::bits_of;
using testing::expect_planned_bytes;
using testing::TinyRun;

/// Eight layers, so that any of the schedules has something for each piece.
struct DeepRun : TinyRun {
  DeepRun() {
    config.run.steps = 3;
    config.model.layers = 8;
    config.model.dropout = 0.1;
    config.data.global_batch = 16;
  }
};

struct Schedule {
  const char* name;
  int chunks;
};
constexpr Schedule kSchedules[] = {
    {"gpipe", 1}, {"1f1b", 1}, {"interleaved", 2}, {"zero-bubble", 1}, {"zero-bubble-v", 1}};

void set(plan::TrainConfig& config, const Schedule& schedule, int stages) {
  config.parallel.schedule = schedule.name;
  config.parallel.chunks = schedule.chunks;
  config.parallel.pipeline = stages;
}

TEST(Pipeline, EveryScheduleHasTheBitsOfOneRank) {
  DeepRun run;
  const Bits alone = bits_of(run.run(1));
  for (const Schedule& schedule : kSchedules) {
    for (const int stages : {1, 2, 4}) {
      set(run.config, schedule, stages);
      const nlohmann::json cut = run.run(stages);
      EXPECT_EQ(bits_of(cut), alone) << schedule.name << " in " << stages << " stages";
      expect_planned_bytes(cut);
    }
  }
}

TEST(Pipeline, StagesAndReplicasHaveTheBitsOfOneRank) {
  DeepRun run;
  const Bits alone = bits_of(run.run(1));
  for (const char* shard : {"none", "zero1", "zero2", "zero3"}) {
    run.config.parallel.shard = shard;
    for (const Schedule& schedule : kSchedules) {
      set(run.config, schedule, 2);
      const nlohmann::json cut = run.run(4);
      EXPECT_EQ(bits_of(cut), alone) << schedule.name << " with " << shard;
      expect_planned_bytes(cut);
    }
  }
}

TEST(Pipeline, UnevenStagesAndRanksHaveTheBitsOfOneRank) {
  DeepRun run;
  run.config.model.layers = 5;
  const Bits alone = bits_of(run.run(1));
  set(run.config, kSchedules[1], 3);
  EXPECT_EQ(bits_of(run.run(3)), alone);
  run.config.parallel.stages = "1,3,1";
  EXPECT_EQ(bits_of(run.run(3)), alone);
  // Three data-parallel ranks of eight leaves: 3, 3 and 2.
  run.config.parallel.stages = "";
  set(run.config, kSchedules[3], 2);
  for (const char* shard : {"none", "zero1", "zero3"}) {
    run.config.parallel.shard = shard;
    EXPECT_EQ(bits_of(run.run(6)), alone) << shard;
  }
}

TEST(Pipeline, AnUntiedHeadAndSeveralMicroBatchesALeaf) {
  DeepRun run;
  run.config.model.tied = false;
  run.config.numerics.grains = 2;  // of four micro-batches each
  const Bits alone = bits_of(run.run(1));
  for (const Schedule& schedule : kSchedules) {
    set(run.config, schedule, 2);
    EXPECT_EQ(bits_of(run.run(2)), alone) << schedule.name;
  }
}

/// Equal digests prove nothing if every rank does all the work.
TEST(Pipeline, WorkIsReallySplit) {
  torch_inside::install_gemm_counter();
  DeepRun run;
  const nlohmann::json alone = run.run(1);
  set(run.config, kSchedules[1], 4);
  const nlohmann::json cut = run.run(4);
  int64_t flops = 0;
  for (const auto& rank : cut["ranks"]) {
    EXPECT_LT(rank["gemm_flops"].get<int64_t>() * 3, alone["ranks"][0]["gemm_flops"]);
    flops += rank["gemm_flops"].get<int64_t>();
  }
  EXPECT_EQ(flops, alone["ranks"][0]["gemm_flops"]);
}

TEST(Pipeline, EveryStageExecutesItsProgram) {
  DeepRun run;
  for (const Schedule& schedule : kSchedules) {
    set(run.config, schedule, 2);
    run.run_on(2, [&](Trainer& trainer, int) {
      trainer.run();
      EXPECT_EQ(plan::text({.rank = 0, .steps = trainer.runner().executed()}),
                plan::text(plan::step_program(trainer.step_inputs(), 0)))
          << schedule.name;
    });
  }
}

TEST(Pipeline, MicroBatchesInFlightAreThePlans) {
  DeepRun run;
  for (const Schedule& schedule : kSchedules) {
    set(run.config, schedule, 4);
    run.run_on(4, [&](Trainer& trainer, int) {
      trainer.run();
      const plan::StepInputs& inputs = trainer.step_inputs();
      EXPECT_EQ(trainer.most_in_flight(),
                plan::peak_in_flight(inputs.schedules.front(), inputs.stage))
          << schedule.name << " stage " << inputs.stage;
    });
  }
}

/// What a stage keeps of a micro-batch between its forward and its backward: its blocks, of the
/// last stage also the head. The result that it hands on is the next one's input.
int64_t bytes_of_a_micro_batch(const plan::TrainConfig& config, int stage) {
  const auto kept = [&](int64_t layers) {
    plan::DecoderShape shape = plan::decoder_shape_of(config);
    shape.layers = layers;
    return plan::decoder_activation_bytes(shape, plan::Recompute::none).kept;
  };
  const int64_t layers = config.model.layers / config.parallel.pipeline;
  return stage + 1 == config.parallel.pipeline ? kept(layers) : kept(layers + 1) - kept(1);
}

/// The allocator's peak is a part that is there once, the same in both schedules, and what the
/// micro-batches in flight keep. Off by less than half of one result that goes on to the next stage
/// for every micro-batch in flight: those are gone when they are sent.
TEST(Pipeline, PeakBytesFollowWhatIsInFlight) {
  constexpr int kStages = 4;
  constexpr int kMicros = 8;
  memory::install_counting_allocator();
  TinyRun run;
  run.config.run.steps = 2;
  run.config.model.layers = kStages;
  run.config.model.context = 32;
  run.config.data.global_batch = kMicros * run.config.data.micro_batch;
  std::map<std::string, std::vector<int64_t>> peaks;
  for (const char* schedule : {"gpipe", "1f1b"}) {
    set(run.config, {schedule, 1}, kStages);
    const nlohmann::json cut = run.run(kStages);
    for (const auto& rank : cut["ranks"]) {
      peaks[schedule].push_back(rank["peak_bytes"]["activations"]);
    }
  }
  const int64_t result =
      4 * run.config.data.micro_batch * run.config.model.context * run.config.model.width;
  for (int stage = 0; stage < kStages; ++stage) {
    const auto at = static_cast<size_t>(stage);
    const int64_t of_one = bytes_of_a_micro_batch(run.config, stage);
    const int64_t in_flight = std::min(kMicros, kStages - stage);
    const int64_t once = peaks["1f1b"][at] - in_flight * of_one;
    EXPECT_GT(once, 0) << "stage " << stage;
    EXPECT_LT(once, of_one) << "stage " << stage << ": more is there than what is in flight";
    // Gradients that came before their turn wait at a stage: a result each, at most one a
    // micro-batch.
    const int64_t expected = once + kMicros * of_one;
    const int64_t waiting = kMicros * result;
    ASSERT_LT(waiting, of_one) << "or a micro-batch too many would not show";
    EXPECT_LE(std::abs(peaks["gpipe"][at] - expected), waiting)
        << "stage " << stage << ": once " << once << ", " << of_one << " for each of " << in_flight
        << " or " << kMicros << ", a result has " << result;
  }
}

}  // namespace
}  // namespace lockstep
