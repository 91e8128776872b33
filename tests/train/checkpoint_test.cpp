// A run that is interrupted and goes on, on whatever layout, ends with the bits of the unbroken
// one.

#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/reader.h"
#include "tests/train/resumed_run.h"
#include "tests/train/run_bits.h"

namespace lockstep::testing {
namespace {

/// One step on each layout, each from the checkpoint that the one before left.
void expect_unbroken_bits(ResumedRun& run, const std::vector<Layout>& chain) {
  run.config.run.steps = static_cast<int64_t>(chain.size());
  run.config.run.check_every = 1;
  const nlohmann::json unbroken = run.run_with({});
  std::string from;
  nlohmann::json last;
  for (size_t i = 0; i < chain.size(); ++i) {
    SCOPED_TRACE(::testing::Message() << "step " << i + 1 << " on " << chain[i]);
    const auto step = static_cast<int64_t>(i) + 1;
    last = run.run_part(chain[i], from, step);
    expect_planned_bytes(last);
    if (step < run.config.run.steps) {
      EXPECT_EQ(last["steps"], step);
      from = run.checkpoint_of(step);
      EXPECT_EQ(checkpoints::read_manifest(from).param_digest, last["param_digest"]);
    }
  }
  EXPECT_EQ(bits_of(last), bits_of(unbroken));
  EXPECT_EQ(last["skipped_steps"], unbroken["skipped_steps"]);
  EXPECT_EQ(last["loss_scale"], unbroken["loss_scale"]);
  if (unbroken.contains("ema_digest")) {
    EXPECT_EQ(last["ema_digest"], unbroken["ema_digest"]);
  }
}

std::vector<Layout> all_layouts() {
  std::vector<Layout> chain = layouts();
  chain.push_back({});
  return chain;
}

TEST(Checkpoint, GoesOnWithTheSameBitsFromLayoutToLayout) {
  ResumedRun run;
  run.config.numerics.grains = 4;
  run.config.model.dropout = 0.1;
  expect_unbroken_bits(run, all_layouts());
}

TEST(Checkpoint, SoItDoesWithTensorGrainsAndAPaddedVocabulary) {
  ResumedRun run;
  run.config.numerics.grains = 4;
  run.config.numerics.tensor_grains = 2;
  run.config.model.context = 10;
  std::vector<Layout> chain = {{}};
  for (const Layout& layout : tensor_layouts()) chain.push_back(layout);
  for (const Layout& layout :
       {Layout{.data = 3, .shard = "zero1"}, Layout{.data = 2, .shard = "zero2", .tensor = 2},
        Layout{.data = 2, .shard = "zero3", .pipeline = 2, .tensor = 2}, Layout{.data = 2}}) {
    chain.push_back(layout);
  }
  expect_unbroken_bits(run, chain);
}

/// Where optimizers keep other moments, and ratios need all of a parameter.
TEST(Checkpoint, SoItDoesWithEveryOptimizer) {
  for (const char* optimizer : {"sgd", "lars", "lamb"}) {
    SCOPED_TRACE(optimizer);
    ResumedRun run;
    run.config.numerics.grains = 4;
    run.config.optim.name = optimizer;
    run.config.optim.lr = 0.01;
    expect_unbroken_bits(run, {{.data = 2},
                               {.data = 3, .shard = "zero1"},
                               {.data = 2, .shard = "zero3"},
                               {.pipeline = 2},
                               {}});
  }
}

TEST(Checkpoint, SoItDoesWithAMovingAverageAndABatchThatGrows) {
  ResumedRun run;
  run.config.numerics.grains = 4;
  run.config.optim.ema = 0.7;
  run.config.data.ramp_from = 4;
  run.config.data.micro_batch = 1;
  run.config.data.ramp_steps = 4;
  expect_unbroken_bits(run, {{.data = 2},
                             {.data = 2, .shard = "zero1"},
                             {.data = 3, .shard = "zero3"},
                             {.pipeline = 2},
                             {},
                             {.data = 2, .shard = "zero2"}});
}

TEST(Checkpoint, SoItDoesInSixteenBitsWithGroupedHeads) {
  ResumedRun run;
  run.config.model.family = "llama";
  run.config.model.bias = false;
  run.config.model.heads = 4;
  run.config.model.kv_heads = 2;
  run.config.model.width = 32;
  run.config.precision.compute = "bf16";
  run.config.numerics.grains = 4;
  expect_unbroken_bits(run, {{.data = 2, .shard = "zero3"}, {.pipeline = 2}, {.data = 3}});
}

/// The scale doubles right after its fourth clean step, though a save lies between.
TEST(Checkpoint, AMP_3_TheLossScaleGrowsOnTime) {
  ResumedRun run;
  run.config.precision.compute = "fp16";
  run.config.precision.first_scale = 1024;
  run.config.precision.growth_steps = 4;
  run.config.run.steps = 8;
  const auto saved = run.run_part({}, "", 3);
  EXPECT_EQ(saved["loss_scale"], 1024);
  const auto resumed = run.run_part({.data = 2}, run.checkpoint_of(3), 4);
  EXPECT_EQ(resumed["loss_scale"], 2048);
}

/// State in a file is brought block by block, with and without a copy.
TEST(Checkpoint, OffloadedStateIsSavedAndBroughtBack) {
  ResumedRun run;
  run.config.numerics.grains = 4;
  run.config.run.steps = 4;
  const auto unbroken = run.run_with({});
  std::string from;
  int64_t step = 0;
  for (const Layout& layout :
       {Layout{}, Layout{.data = 2, .shard = "zero1"}, Layout{.data = 2, .shard = "zero3"}}) {
    ++step;
    run.config.memory.offload = "disk";
    run.config.memory.offload_dir = run.folder.path();
    run.config.checkpoint.async = step % 2 == 0;
    run.run_part(layout, from, step);
    from = run.checkpoint_of(step);
  }
  run.config.memory.offload = "none";
  run.config.memory.offload_dir.clear();
  EXPECT_EQ(bits_of(run.run_part({.data = 3}, from)), bits_of(unbroken));
}

/// Who holds the same writes equal parts of it; who reads takes what it holds, and no more.
TEST(Checkpoint, EachByteIsWrittenOnceAndReadOnceAReplica) {
  for (const Layout& layout :
       {Layout{.data = 4}, Layout{.data = 4, .shard = "zero1"}, Layout{.data = 4, .shard = "zero3"},
        Layout{.data = 2, .tensor = 2}, Layout{.data = 2, .shard = "zero3", .pipeline = 2}}) {
    SCOPED_TRACE(::testing::Message() << layout);
    ResumedRun run;
    run.config.numerics.grains = 4;
    run.config.numerics.tensor_grains = 2;
    run.config.model.context = 10;
    run.run_part(layout, "", 1);
    const checkpoints::Reader reader(run.checkpoint_of(1));
    reader.verify();
    int64_t elements = 0;
    int64_t most = 0;
    int64_t least = int64_t{1} << 60;
    for (const auto& part : reader.manifest().files) {
      elements += part.elements;
      most = std::max(most, part.elements);
      least = std::min(least, part.elements);
    }
    int64_t held = 0;  // by the tensors of the index, once
    for (const auto& tensor : reader.index().tensors) {
      for (int grain = 0; grain < tensor.grains; ++grain) held += tensor.grain_param(grain).numel;
    }
    EXPECT_EQ(elements, held);
    if (layout.pipeline == 1 && layout.tensor == 1) {
      EXPECT_LE(most - least, 3 * 256 * 2) << "writers have equal parts";
    }
    // zero3 divides everything: together one replica.
    const auto resumed = run.run_part({.data = 4, .shard = "zero3"}, run.checkpoint_of(1), 2);
    int64_t read = 0;
    for (const auto& rank : resumed["ranks"]) read += rank["resumed_bytes"].get<int64_t>();
    EXPECT_EQ(read, elements * 4);
  }
}

TEST(Checkpoint, TheNewestAndEverySoManyAreKept) {
  ResumedRun run;
  run.config.checkpoint.every = 1;
  run.config.checkpoint.keep = 2;
  run.config.checkpoint.keep_every = 3;
  run.config.run.steps = 8;
  run.run_part({.data = 2}, "");
  std::vector<int64_t> steps;
  for (const auto& found : checkpoints::complete_checkpoints(run.folder.path())) {
    steps.push_back(found.step);
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{8, 7, 6, 3}));
  for (const auto& entry :
       std::filesystem::directory_iterator(checkpoints::checkpoints_of(run.folder.path()))) {
    EXPECT_EQ(entry.path().string().find(".tmp"), std::string::npos) << entry.path();
  }
}

/// A run that goes on from an older checkpoint leaves the newer ones, which are of another course
/// of it: neither do they count as its newest, nor are they lost.
TEST(Checkpoint, WhatLiesBehindTheStepIsSetAsideAndNeverPruned) {
  ResumedRun run;
  run.config.checkpoint.every = 1;
  run.config.checkpoint.keep = 2;
  run.config.run.steps = 6;
  run.run_part({.data = 2}, "");
  const auto steps = [&run] {
    std::vector<int64_t> found;
    for (const auto& one : checkpoints::complete_checkpoints(run.folder.path())) {
      found.push_back(one.step);
    }
    return found;
  };
  EXPECT_EQ(steps(), (std::vector<int64_t>{6, 5}));
  run.config.run.steps = 8;
  run.run_part({}, run.checkpoint_of(5), 7);
  EXPECT_EQ(steps(), (std::vector<int64_t>{7, 6}));
  EXPECT_TRUE(std::filesystem::exists(run.checkpoint_of(6) + ".left/manifest.json"));
}

/// What --json says of the last step is there though no step was made.
TEST(Checkpoint, ARunThatGoesOnAtItsEndHasTheFiguresOfItsLastStep) {
  ResumedRun run;
  run.config.checkpoint.every = 2;
  run.config.run.steps = 4;
  const auto whole = run.run_part({.data = 2}, "");
  const auto again = run.run_part({}, run.checkpoint_of(4));
  EXPECT_EQ(bits_of(again), bits_of(whole));
  run.config.run.steps = 3;
  EXPECT_THROW(run.run_part({}, run.checkpoint_of(4)), UsageError);
}

TEST(Checkpoint, OfAnotherModelOptimizerOrBatchIsRefused) {
  ResumedRun run;
  run.run_part({.data = 2}, "", 1);
  const auto refused = [&](auto change) -> std::string {
    ResumedRun other;
    other.config = run.config;
    change(other.config);
    try {
      other.run_part({.data = 2}, run.checkpoint_of(1));
    } catch (const Error& error) {
      return error.what();
    }
    return "it was taken";
  };
  EXPECT_NE(refused([](auto& config) { config.model.width = 32; }).find("of another model"),
            std::string::npos);
  EXPECT_NE(refused([](auto& config) { config.optim.name = "sgd"; }).find("momentum"),
            std::string::npos);
  EXPECT_NE(refused([](auto& config) { config.data.micro_batch = 4; }).find("identity"),
            std::string::npos);
  EXPECT_NE(refused([](auto& config) { config.model.layers = 1; }).find("another"),
            std::string::npos);
  EXPECT_NE(refused([](auto& config) { config.run.seed = 5; }).find("seed"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::testing
