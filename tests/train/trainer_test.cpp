#include "lockstep/train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/torch_inside/gemm_counter.h"
#include "lockstep/train/model_file.h"
#include "tests/train/tiny_run.h"

namespace lockstep {
namespace {

using testing::TinyRun;

class TrainerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { torch_inside::install_gemm_counter(); }
};

/// Equal digests prove nothing if every rank does all the work.
TEST_F(TrainerTest, WorkIsReallySplit) {
  TinyRun run;
  const nlohmann::json alone = run.run(1);
  const auto samples = alone["ranks"][0]["samples"].get<int64_t>();
  const auto flops = alone["ranks"][0]["gemm_flops"].get<int64_t>();
  EXPECT_EQ(samples, 4 * 8);
  EXPECT_GT(flops, 0);
  for (const int ranks : {2, 4}) {
    const nlohmann::json shared = run.run(ranks);
    ASSERT_EQ(shared["ranks"].size(), static_cast<size_t>(ranks));
    for (const auto& rank : shared["ranks"]) {
      EXPECT_EQ(rank["samples"], samples / ranks);
      EXPECT_EQ(rank["gemm_flops"], flops / ranks);
    }
  }
}

TEST_F(TrainerTest, ThreeRanksSplitFourLeavesAsPlanned) {
  TinyRun run;
  const nlohmann::json shared = run.run(3);
  EXPECT_EQ(shared["ranks"][0]["samples"], 16);
  EXPECT_EQ(shared["ranks"][1]["samples"], 8);
  EXPECT_EQ(shared["ranks"][2]["samples"], 8);
}

/// Three witnesses: the plan, what the ledger counted, and the closed form.
TEST_F(TrainerTest, BytesMovedArePlannedBytes) {
  TinyRun run;
  EXPECT_EQ(run.run(1)["groups"]["dp"]["bytes"], 0);
  for (const int ranks : {2, 3, 4}) {
    for (const double bucket_mb : {25.0, 0.004}) {
      run.config.comm.bucket_mb = bucket_mb;
      const nlohmann::json summary = run.run(ranks);
      const auto bytes = summary["groups"]["dp"]["bytes"].get<int64_t>();
      EXPECT_EQ(bytes, summary["groups"]["dp"]["planned_bytes"].get<int64_t>());
      // One term a rank: 2 (N - 1) of the gradient's bytes over all ranks, + the losses' 8 bytes
      // from each rank to each other.
      int64_t flat = 0;
      run.run_on(1, [&](Trainer& trainer, int) { flat = trainer.params().buckets().numel; });
      const int64_t steps = run.config.run.steps;
      EXPECT_EQ(bytes, steps * (2 * (ranks - 1) * flat * 4 + ranks * (ranks - 1) * 8));
    }
  }
}

TEST_F(TrainerTest, ExecutesTheProgram) {
  TinyRun run;
  run.config.comm.bucket_mb = 0.004;
  for (const bool overlap : {true, false}) {
    run.config.comm.overlap = overlap;
    for (const int ranks : {1, 3}) {
      run.run_on(ranks, [&](Trainer& trainer, int rank) {
        trainer.run();
        const auto program = plan::data_parallel_program(trainer.step_inputs(), rank);
        EXPECT_EQ(trainer.runner().executed(), program.steps);
        EXPECT_GT(trainer.step_inputs().buckets.buckets.size(), 3u);
      });
    }
  }
}

TEST_F(TrainerTest, LearnsWhatIsThere) {
  TinyRun run;
  run.config.run.steps = 60;
  run.config.optim.lr = 1e-2;
  const nlohmann::json summary = run.run(2);
  // The data take one of three values after each token: log 3 = 1.10 nats; at start log 67 = 4.20.
  EXPECT_LT(summary["val_loss"].get<double>(), 2.5);
  EXPECT_EQ(summary["tokens"], 60 * 8 * 11);
}

TEST_F(TrainerTest, EpochsFollowEachOther) {
  TinyRun run;
  run.config.run.steps = 40;  // 320 samples of 136 windows
  EXPECT_TRUE(std::isfinite(run.run(2)["loss"].get<double>()));
}

/// One bit of one parameter on one of three ranks, before the second step.
TEST_F(TrainerTest, AFlippedBitIsFoundNamingRankAndParameter) {
  TinyRun run;
  for (const int64_t check_every : {2, 1000}) {  // 1000: at the end
    run.config.run.check_every = check_every;
    for (const int culprit : {0, 2}) {
      std::string path;
      try {
        run.run_on(3, [&](Trainer& trainer, int rank) {
          if (rank == culprit) {
            path = trainer.params().table().params[0].name;
            // Of a weight, and not the last bit: an update would round it away.
            void* const values = trainer.params().use(0, 0).detach().data_ptr();
            static_cast<uint32_t*>(values)[0] ^= 1u << 12;
          }
          trainer.run();
        });
        FAIL() << "nobody noticed";
      } catch (const CommError& error) {
        const std::string message = error.what();
        EXPECT_NE(message.find(base::str("on rank ", culprit, " are not those of the others")),
                  std::string::npos)
            << message;
        EXPECT_NE(message.find("\"" + path + "\""), std::string::npos) << message;
      }
    }
  }
  run.config.run.check_every = 0;
  run.run_on(2, [&](Trainer& trainer, int) { trainer.run(); });
}

TEST_F(TrainerTest, ALossThatIsNoNumberEndsTheRunNamingTheParameter) {
  TinyRun run;
  run.config.optim.lr = 1e30;
  run.config.run.steps = 10;
  try {
    run.run(2);
    FAIL() << "went on";
  } catch (const TrainingError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("step "), std::string::npos) << message;
    EXPECT_NE(message.find("not finite"), std::string::npos) << message;
    EXPECT_EQ(error.exit_code(), 1);
  }
}

/// A signal reaches ranks at different times: one that has it must not leave the others waiting.
TEST_F(TrainerTest, StopsTogetherThoughOnlyOneRankWasAsked) {
  TinyRun run;
  const std::atomic<bool> asked{true};
  const std::atomic<bool> not_asked{false};
  run.run_on(
      3,
      [](Trainer& trainer, int rank) {
        const TrainResult result = trainer.run();
        EXPECT_TRUE(result.stopped) << "rank " << rank;
        if (rank == 0) {
          const auto summary = nlohmann::json::parse(result.summary);
          EXPECT_EQ(summary["steps"], 1);
          EXPECT_TRUE(summary["val_loss"].is_null());
        }
      },
      [&](int rank) { return rank == 1 ? &asked : &not_asked; });
}

/// Dropout is drawn by the sample's number in the step, so another cut of the step (another
/// identity) sees the same masks: its loss differs by rounding only.
TEST_F(TrainerTest, DropoutFollowsTheSampleNotTheCut) {
  TinyRun run;
  run.config.run.steps = 1;
  run.config.model.dropout = 0.5;
  const double by_two = run.run(1)["loss"].get<double>();
  run.config.data.micro_batch = 4;
  const double by_four = run.run(1)["loss"].get<double>();
  EXPECT_NEAR(by_four, by_two, 1e-6 * by_two);
  run.config.data.micro_batch = 2;
  run.config.model.dropout = 0.0;
  EXPECT_GT(std::abs(run.run(1)["loss"].get<double>() - by_two), 1e-4);
}

TEST_F(TrainerTest, SavedModelLoadsWithTheSameDigestAndLoss) {
  TinyRun run;
  const testing::TempFolder out;
  std::string summary;
  run.run_on(2, [&](Trainer& trainer, int rank) {
    trainer.run();
    if (rank == 0) {
      save_model(out.file("final.safetensors"), {trainer.params(), nullptr, nullptr},
                 {.config = run.config,
                  .vocab = run.config.model.vocab,
                  .identity = "test",
                  .param_digest = trainer.params().digest().text(),
                  .step = 4});
      summary = trainer.params().digest().text();
    }
  });
  const LoadedModel loaded = load_model(out.file("final.safetensors"));
  EXPECT_EQ(loaded.params->digest().text(), summary);
  EXPECT_EQ(loaded.info.step, 4);
  EXPECT_EQ(loaded.info.config.model.width, run.config.model.width);
}

TEST_F(TrainerTest, ParametersAreAsManyAsTheConfigSays) {
  for (const bool variant : {true, false}) {
    for (const char* family : {"gpt2", "mlp"}) {
      TinyRun run;
      run.config.model.family = family;
      run.config.model.tied = variant && run.config.model.family == "gpt2";
      run.config.model.bias = variant;
      run.config.model.ffn = variant ? 0 : 31;
      run.run_on(1, [&](Trainer& trainer, int) {
        EXPECT_EQ(plan::parameter_count(run.config), trainer.params().table().numel()) << family;
      });
    }
  }
}

/// 300 tokens hold 27 windows of 11: an evaluation of 800 would count each many times.
TEST_F(TrainerTest, EvaluationIsAtMostOnePass) {
  TinyRun run;
  run.config.run.steps = 1;
  run.config.data.eval_batches = 100;
  const double much = run.run(3)["val_loss"].get<double>();
  EXPECT_EQ(run.run(1)["val_loss"].get<double>(), much);
  run.config.data.eval_batches = 4;  // 32 windows: capped at the same 27
  EXPECT_EQ(run.run(2)["val_loss"].get<double>(), much);
}

TEST_F(TrainerTest, ZeroStepsEvaluateAndSave) {
  TinyRun run;
  run.config.run.steps = 0;
  const nlohmann::json summary = run.run(2);
  EXPECT_TRUE(summary["loss"].is_null());
  EXPECT_NEAR(summary["val_loss"].get<double>(), std::log(67.0), 0.1);
}

TEST_F(TrainerTest, RefusesMoreRanksThanLeaves) {
  TinyRun run;
  EXPECT_THROW(run.run(5), UsageError);
}

}  // namespace
}  // namespace lockstep
