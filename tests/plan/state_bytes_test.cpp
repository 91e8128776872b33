#include "lockstep/plan/state_bytes.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/plan/fitting.h"
#include "lockstep/plan/run_layout.h"

namespace lockstep::plan {
namespace {

ParamDeclaration param(const std::string& name, std::vector<int64_t> shape) {
  return {.name = name, .shape = std::move(shape), .trainable = true, .init = {}};
}

/// Sizes of whole cache lines, so that nothing is padded.
ParamTable layers(int count, int64_t width) {
  std::vector<ParamDeclaration> declared = {param("wte", {256, width})};
  for (int layer = 0; layer < count; ++layer) {
    declared.push_back(param("h." + std::to_string(layer) + ".fc", {12 * width, width}));
  }
  return make_param_table(declared, {});
}

StepInputs inputs_of(const std::string& shard, int ranks, const ParamTable& table) {
  TrainConfig config;
  config.parallel.shard = shard;
  config.data.global_batch = ranks;
  config.data.micro_batch = 1;
  config.numerics.grains = ranks;
  config.comm.bucket_mb = config.comm.first_bucket_mb = 1;
  return step_inputs_of(config, table, ranks);
}

/// One leaf a rank: parameters, gradients and optimizer are the paper's, to the last byte where
/// ranks divide the chunks.
TEST(StateBytes, AreTheFormsOfThePaper) {
  const ParamTable table = layers(6, 128);
  const int64_t P = table.numel();
  for (const int N : {1, 2, 4, 8}) {
    const auto held = [&](const char* stage) {
      const StateBytes bytes = planned_state(inputs_of(stage, N, table), 0);
      return bytes.parameters + bytes.gradients + bytes.optimizer;
    };
    EXPECT_EQ(held("none"), 16 * P);
    EXPECT_EQ(held("zero1"), 8 * P + 8 * P / N);
    EXPECT_EQ(held("zero2"), 4 * P + 12 * P / N);
    EXPECT_EQ(held("zero3"), 16 * P / N);
  }
}

/// 4 bytes a parameter where AdamW keeps 8, divided as its are.
TEST(StateBytes, FollowTheOptimizer) {
  const ParamTable table = layers(6, 128);
  const int64_t P = table.numel();
  for (const OptimizerName& optimizer : kOptimizers) {
    for (const int N : {1, 4}) {
      StepInputs inputs = inputs_of("zero1", N, table);
      inputs.optimizer = parse_optimizer(optimizer.name);
      EXPECT_EQ(planned_state(inputs, 0).optimizer, 4 * optimizer.moments * P / N)
          << optimizer.name;
    }
    TrainConfig config;
    config.optim.name = optimizer.name;
    EXPECT_EQ(state_bytes_per_rank(config, 1),
              4 * (2 + optimizer.moments) * parameter_count(config));
    EXPECT_EQ(step_inputs_of(config, table, 1).optimizer, parse_optimizer(optimizer.name));
  }
  EXPECT_THROW(parse_optimizer("adam"), UsageError);
}

/// The buffers of a leaf: the root's, whose gradient comes first and last, and two layers'.
TEST(StateBytes, OfALeafAreTheUnitsAtWork) {
  const ParamTable table = layers(6, 128);
  const int64_t layer = 12 * 128 * 128 * 4, root = 256 * 128 * 4;
  const StateBytes zero3 = planned_state(inputs_of("zero3", 4, table), 0);
  EXPECT_EQ(zero3.leaf, 2 * layer + root);
  EXPECT_EQ(zero3.gathered, 2 * layer + root);
  EXPECT_EQ(zero3.side, 0);
}

/// ZERO-9: 16 leaves of one micro-batch keep a few slices on each of 4 ranks, 4 leaves of 4 keep a
/// whole gradient.
TEST(StateBytes, ZERO_9_WhatAccumulationKeeps) {
  const ParamTable table = layers(20, 64);
  const int64_t whole = table.numel() * 4;
  TrainConfig config;
  config.parallel.shard = "zero3";
  config.data.global_batch = 16;
  config.data.micro_batch = 1;
  config.numerics.grains = 16;
  const StateBytes leaves = planned_state(step_inputs_of(config, table, 4), 0);
  EXPECT_EQ(leaves.gradients, 3 * whole / 4) << "levels of a stack of four rounds";
  EXPECT_LT(leaves.leaf, whole / 8);
  config.numerics.grains = 4;
  const StateBytes micros = planned_state(step_inputs_of(config, table, 4), 0);
  EXPECT_EQ(micros.gradients, whole / 4);
  EXPECT_EQ(micros.leaf, whole);
}

TEST(Fitting, OffersWhatChangesLeastFirst) {
  TrainConfig config;
  config.model.layers = 12;
  config.model.width = 256;
  const ParamTable table = layers(12, 256);
  const int64_t state = 16 * table.numel();
  const std::string text = settings_within(config, table, 4, state);
  EXPECT_NE(text.find("By the plan a rank of this run needs"), std::string::npos) << text;
  const size_t first = text.find("--set");
  ASSERT_NE(first, std::string::npos) << text;
  EXPECT_EQ(text.find("parallel.shard=none"), std::string::npos) << text;
  EXPECT_EQ(text.find("memory.offload"), std::string::npos) << "there is less to change\n" << text;
  TrainConfig fits = config;
  // The first offer is taken at its word.
  std::string line = text.substr(first, text.find('\n', first) - first);
  while (line.starts_with("--set ")) {
    const size_t end = line.find(' ', 6);
    const std::string assignment = line.substr(6, end - 6);
    const size_t equals = assignment.find('=');
    set_key(fits, assignment.substr(0, equals), assignment.substr(equals + 1));
    line = line.substr(end + 1);
  }
  EXPECT_LE(planned_memory(fits, table, 4).total(), state) << text;
  EXPECT_GT(planned_memory(config, table, 4).total(), state);
}

TEST(Fitting, SaysWhenNothingFits) {
  const std::string text = settings_within({}, layers(4, 128), 1, 1000);
  EXPECT_NE(text.find("Nothing that can be set fits; the least is --set "), std::string::npos)
      << text;
}

TEST(PlannedMemory, OfActivationsIsSaidOnlyWhereThereIsAForm) {
  const auto activations = [](const char* key, const char* value) {
    TrainConfig config;
    config.model.vocab = 256;
    set_key(config, key, value);
    const ParamTable table =
        make_param_table({{.name = "wte.weight", .shape = {256, 128}, .init = {}}}, {});
    return planned_memory(config, table, 1).activations;
  };
  EXPECT_GT(activations("model.family", "gpt2"), 0);
  EXPECT_EQ(activations("model.family", "llama"), 0);
  EXPECT_EQ(activations("numerics.tensor_grains", "4"), 0);
}

}  // namespace
}  // namespace lockstep::plan
