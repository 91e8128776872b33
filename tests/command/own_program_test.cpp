// Programs of a user's own: as ranks of `lockstep run`, and as the worker of `lockstep train`.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/command/command.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

std::string beside_this(const std::string& program) {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / program).string();
}

CommandResult on_ranks(int ranks, const std::string& how) {
  return lockstep({"run", "-n", std::to_string(ranks), "--", beside_this("init_rank"), how});
}

TEST(Init, ThreeRanksAgreeWithOneThreadEach) {
  const CommandResult result = on_ranks(3, "well");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("threads 1"));
}

TEST(Init, AloneItIsAWorldOfOne) { EXPECT_EQ(Command({"init_rank", "well"}).wait().exit_code, 0); }

/// An exception that leaves main is the first cause, with the code of its kind.
TEST(Init, WhatLeavesMainEndsTheJobWithItsMessageAndCode) {
  const CommandResult usage = on_ranks(3, "usage");
  EXPECT_EQ(usage.exit_code, 2) << usage.err;
  EXPECT_THAT(usage.err, HasSubstr("the width must be even"));
  const CommandResult other = on_ranks(3, "other");
  EXPECT_EQ(other.exit_code, 1) << other.err;
  EXPECT_THAT(other.err, HasSubstr("no such sample"));
  EXPECT_LT(other.seconds, 20);
}

TEST(Init, ARankThatReturnsEarlyIsTheFirstCause) {
  const CommandResult result = on_ranks(3, "code");
  EXPECT_EQ(result.exit_code, 7) << result.err;
  EXPECT_THAT(result.err, HasSubstr("[rank 2 of 3]"));
}

TEST(Init, OnceAProcess) {
  const CommandResult result = on_ranks(2, "twice");
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("called twice"));
}

std::vector<std::string> spirals(int ranks) {
  return {"examples/own_task.toml",
          "-n",
          std::to_string(ranks),
          "--set",
          "run.worker=" + beside_this("own_task"),
          "--set",
          "run.steps=60"};
}

TEST(OwnTask, SameBitsOnAnyNumberOfRanks) {
  const TempFolder runs;
  const nlohmann::json alone = train(runs, spirals(1));
  EXPECT_LT(alone["loss"].get<double>(), 0.69) << "it learns";
  EXPECT_TRUE(alone["val_loss"].is_number());
  for (const int ranks : {2, 3}) {
    const nlohmann::json shared = train(runs, spirals(ranks));
    EXPECT_EQ(shared["param_digest"], alone["param_digest"]) << ranks;
    EXPECT_EQ(shared["grad_norm"].dump(), alone["grad_norm"].dump());
    EXPECT_EQ(shared["val_loss"].dump(), alone["val_loss"].dump());
    int64_t samples = 0;
    for (const auto& rank : shared["ranks"]) samples += rank["samples"].get<int64_t>();
    EXPECT_EQ(samples, 60 * 64);
    EXPECT_LT(shared["ranks"][0]["samples"].get<int64_t>(), 60 * 64);
    EXPECT_EQ(shared["groups"]["dp"]["bytes"], shared["groups"]["dp"]["planned_bytes"]);
  }
}

TEST(OwnTask, AnUnknownFamilyIsNamedWithThoseThereAre) {
  const TempFolder runs;
  std::vector<std::string> arguments = spirals(2);
  arguments.insert(arguments.begin(), "train");
  arguments.insert(arguments.end(),
                   {"--set", "model.family=circles", "--set", "run.dir=" + runs.path()});
  const CommandResult result = lockstep(arguments);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("circles"));
  EXPECT_THAT(result.err, HasSubstr("spirals"));
}

TEST(OwnTask, AFamilyWithoutItsProgramIsRefused) {
  const CommandResult result =
      lockstep({"train", "--preset", "nano", "--set", "model.family=spirals"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("run.worker"));
  const CommandResult missing =
      lockstep({"train", "examples/own_task.toml", "--set", "run.worker=nowhere/own"});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.err, HasSubstr("nowhere/own"));
}

}  // namespace
}  // namespace lockstep::testing
