// Steps that are left out, and runs that go back: alike on every rank of every layout.

#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/base/error.h"
#include "tests/train/layouts.h"
#include "tests/train/poison.h"
#include "tests/train/run_bits.h"

namespace lockstep {
namespace {

using testing::bits_of;
using testing::expect_planned_bytes;
using testing::Layout;
using testing::TinyRun;

struct BadRun : TinyRun {
  BadRun() {
    config.model.width = 20;
    config.model.context = 12;
    config.data.micro_batch = 1;
    // A rate that does not depend on how many steps there are.
    config.optim.decay = "constant";
    config.optim.warmup_steps = 1;
  }

  /// `name`: of the parameter whose gradient overflows in the step after `steps`; empty: none does.
  nlohmann::json run_with(const Layout& layout, const std::string& name, int64_t steps = 1) {
    layout.set(config);
    nlohmann::json summary;
    std::vector<int64_t> taken(static_cast<size_t>(layout.ranks()));
    run_on(layout.ranks(), [&](Trainer& trainer, int rank) {
      if (!name.empty()) testing::poison(trainer, steps, name);
      const TrainResult result = trainer.run();
      if (!result.summary.empty()) summary = nlohmann::json::parse(result.summary);
      taken[static_cast<size_t>(rank)] = trainer.state().optimizer().steps_taken();
    });
    for (const int64_t steps_of_rank : taken) EXPECT_EQ(steps_of_rank, taken[0]);
    steps_taken = taken[0];
    return summary;
  }

  int64_t steps_taken = 0;  // by the optimizer, on every rank
};

// Of the first stage and of the last; the first is tied over both.
const char* const kNames[] = {"wte", "h.1.mlp"};

TEST(BadSteps, AnOverflowIsLeftOutOnEveryRank) {
  BadRun run;
  run.config.run.on_nan = "skip";
  run.config.run.steps = 1;
  const nlohmann::json before = run.run_with({}, "");
  run.config.run.steps = 3;
  const nlohmann::json alone = run.run_with({}, "h.0.attn");
  EXPECT_EQ(alone["skipped_steps"], 1);
  EXPECT_EQ(run.steps_taken, 2);
  for (const Layout& layout : testing::layouts()) {
    for (const char* name : kNames) {
      SCOPED_TRACE(::testing::PrintToString(layout) + " " + name);
      run.config.run.steps = 3;
      const nlohmann::json shared = run.run_with(layout, name);
      EXPECT_EQ(shared["skipped_steps"], 1);
      EXPECT_EQ(run.steps_taken, 2);
      EXPECT_EQ(bits_of(shared), bits_of(alone));
      expect_planned_bytes(shared);
    }
    run.config.run.steps = 2;
    EXPECT_EQ(run.run_with(layout, "h.1.mlp")["param_digest"], before["param_digest"]) << layout;
  }
}

TEST(BadSteps, AnOverflowOfOneTensorRankIsOneOfAll) {
  BadRun run;
  run.config.numerics.tensor_grains = 2;
  run.config.run.on_nan = "skip";
  run.config.run.steps = 3;
  const nlohmann::json alone = run.run_with({}, "h.0.attn");
  EXPECT_EQ(alone["skipped_steps"], 1);
  for (const Layout& layout : testing::tensor_layouts()) {
    SCOPED_TRACE(::testing::PrintToString(layout));
    const nlohmann::json shared = run.run_with(layout, "h.0.attn");
    EXPECT_EQ(bits_of(shared), bits_of(alone));
    EXPECT_EQ(run.steps_taken, 2);
  }
}

TEST(BadSteps, TrustRatiosOfAStepThatIsLeftOutAreNotTaken) {
  BadRun run;
  run.config.optim.name = "lamb";
  run.config.run.on_nan = "skip";
  run.config.run.steps = 3;
  const nlohmann::json alone = run.run_with({}, "h.0.attn");
  for (const Layout layout : {Layout{.data = 2}, Layout{.data = 3, .shard = "zero1"}}) {
    const nlohmann::json shared = run.run_with(layout, "h.1.mlp");
    EXPECT_EQ(bits_of(shared), bits_of(alone)) << layout;
    expect_planned_bytes(shared);
  }
}

/// Not planted: gradients of 16 bits under a scale that is far too large.
TEST(BadSteps, AScaleThatIsTooLargeIsHalvedOnEveryRank) {
  BadRun run;
  run.config.optim.name = "sgd";  // AdamW's steps are as large whatever gradients are multiplied by
  run.config.run.steps = 12;
  const nlohmann::json exact = run.run_with({}, "");
  run.config.precision.compute = "fp16";
  const nlohmann::json usual = run.run_with({}, "");
  EXPECT_EQ(usual["skipped_steps"], 0);
  EXPECT_EQ(usual["loss_scale"], 65536);
  // Norm and update are of gradients without the scale: near those of fp32, of 2^-11 an operand.
  EXPECT_NEAR(usual["grad_norm"].get<double>() / exact["grad_norm"].get<double>(), 1, 0.05);
  EXPECT_NEAR(usual["val_loss"].get<double>() / exact["val_loss"].get<double>(), 1, 0.01);

  run.config.precision.first_scale = 16'777'216;
  run.config.precision.growth_steps = 3;
  const nlohmann::json alone = run.run_with({}, "");
  const int64_t skipped = alone["skipped_steps"];
  EXPECT_GE(skipped, 2);
  EXPECT_EQ(run.steps_taken, 12 - skipped);
  EXPECT_GT(run.steps_taken, 3);
  for (const Layout& layout : testing::layouts()) {
    SCOPED_TRACE(::testing::PrintToString(layout));
    const nlohmann::json shared = run.run_with(layout, "");
    EXPECT_EQ(bits_of(shared), bits_of(alone));
    EXPECT_EQ(shared["skipped_steps"], skipped);
    EXPECT_EQ(shared["loss_scale"], alone["loss_scale"]);
  }
}

TEST(BadSteps, StopSaysWhatAndWhere) {
  BadRun run;
  try {
    run.run_with({.data = 2}, "h.0.attn");
    FAIL() << "it went on";
  } catch (const std::exception& error) {
    const std::string said = error.what();
    EXPECT_NE(said.find("step 2"), std::string::npos) << said;
    EXPECT_NE(said.find("h.0.attn"), std::string::npos) << said;
  }
}

TEST(BadSteps, ARunGoesBackToItsCopyAndOnPastTheSamples) {
  BadRun run;
  run.config.optim.ema = 0.75;
  run.config.run.steps = 2;
  const nlohmann::json before = run.run_with({}, "");
  run.config.run.on_nan = "rewind";
  run.config.run.rewind_every = 2;
  run.config.run.steps = 6;
  const nlohmann::json alone = run.run_with({}, "h.0.attn", 3);
  EXPECT_EQ(alone["rewinds"], 1);
  EXPECT_EQ(alone["skipped_steps"], 1);
  EXPECT_EQ(run.steps_taken, 4);  // 2 before the copy, and steps 5 and 6
  EXPECT_EQ(alone["ranks"][0]["samples"], 6 * 8);
  for (const Layout& layout : testing::layouts()) {
    SCOPED_TRACE(::testing::PrintToString(layout));
    run.config.run.steps = 6;
    const nlohmann::json shared = run.run_with(layout, "h.1.mlp", 3);
    EXPECT_EQ(bits_of(shared), bits_of(alone));
    EXPECT_EQ(shared["ema_digest"], alone["ema_digest"]);
    EXPECT_EQ(run.steps_taken, 4);
    expect_planned_bytes(shared);
    // Right after going back: all of the state is that of two steps.
    run.config.run.steps = 4;
    const nlohmann::json back = run.run_with(layout, "wte", 3);
    EXPECT_EQ(back["param_digest"], before["param_digest"]);
    EXPECT_EQ(back["ema_digest"], before["ema_digest"]);
    EXPECT_EQ(run.steps_taken, 2);
  }
}

/// Its loss is 3, but 100 for the samples of step 16, whose gradient is as the others'.
struct LeapingTask final : Task {
  struct Module : torch::nn::Module {
    at::Tensor weight = register_parameter("weight", torch::zeros({1}));
  };
  torch::nn::Module& module() override { return *module_; }
  int64_t samples() const override { return 1000; }
  at::Tensor losses(const Samples& samples, const RankContext&) override {
    at::Tensor losses = torch::empty({samples.count});
    for (int64_t s = 0; s < samples.count; ++s) {
      losses[s] = (samples.first + s) / 8 == 15 ? 100 : 3;
    }
    const at::Tensor w = module_->weight;
    return losses + w - w.detach();
  }
  std::shared_ptr<Module> module_ = std::make_shared<Module>();
};

TEST(BadSteps, ALeapOfTheLossIsLeftOutOrUndone) {
  for (const std::string policy : {"none", "skip", "rewind"}) {
    for (const int ranks : {1, 3}) {
      BadRun run;
      run.config.model.family = "leaping";
      run.config.run.worker = "own";
      run.config.run.steps = 20;
      run.config.run.on_spike = policy;
      if (policy == "rewind") run.config.run.rewind_every = 10;
      const testing::TempFolder out;
      net::run_on_threads(ranks, [&](const std::shared_ptr<net::Group>& world) {
        Trainer trainer(
            {.config = run.config,
             .run_folder = out.path(),
             .console_fd = -1,
             .tasks = {{"leaping",
                        [](const plan::TrainConfig&) { return std::make_shared<LeapingTask>(); }}}},
            world->endpoint());
        trainer.run();
        const int64_t expected = policy == "none" ? 20 : policy == "skip" ? 19 : 10 + 4;
        EXPECT_EQ(trainer.state().optimizer().steps_taken(), expected) << policy;
      });
    }
  }
}

TEST(StateCopy, BringsBackMastersMomentsAverageAndCount) {
  BadRun run;
  run.config.parallel.shard = "zero1";
  run.run_on(2, [](Trainer& trainer, int) {
    trainer.run();
    ModelState& state = trainer.state();
    ParamAverage average(state, 0.5);
    StateCopy copy(state, &average);
    optim::Updater& optimizer = state.optimizer();
    float* const numbers[] = {state.params().master(state.params().pieces().back()),
                              optimizer.moment_to_write(0, 1), optimizer.moment_to_write(1, 1),
                              average.values().data()};
    std::vector<float> before;
    for (const float* number : numbers) before.push_back(*number);
    const std::string digest = state.digest();
    const int64_t steps = optimizer.steps_taken();
    copy.keep(steps);
    for (float* number : numbers) *number += 1;
    optimizer.set_steps_taken(77);
    state.publish();
    EXPECT_NE(state.digest(), digest);
    copy.bring_back();
    for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(*numbers[i], before[i]) << i;
    EXPECT_EQ(optimizer.steps_taken(), steps);
    EXPECT_EQ(state.digest(), digest);
  });
}

TEST(StateCopy, HoldsWhatIsPlanned) {
  BadRun run;
  run.config.run.on_nan = "rewind";
  for (const char* optimizer : {"adamw", "sgd"}) {
    run.config.optim.name = optimizer;
    for (const Layout layout : {Layout{}, Layout{.data = 3, .shard = "zero1"},
                                Layout{.data = 2, .shard = "zero3"}, Layout{.pipeline = 2}}) {
      const nlohmann::json summary = run.run_with(layout, "");
      for (const auto& rank : summary["ranks"]) {
        EXPECT_EQ(rank["peak_bytes"]["optimizer"], rank["planned_peak_bytes"]["optimizer"])
            << optimizer << " " << layout << " rank " << rank["rank"];
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
