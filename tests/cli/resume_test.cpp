// What a run goes on from, and with which settings: no rank is started.
#include "lockstep/cli/resume.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/cli/run_folder.h"
#include "lockstep/files/temp_folder.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

class Resume : public testing::Test {
 protected:
  Resume() {
    config_.run.dir = folder_.file("my runs");
    config_.run.steps = 40;
    config_.numerics.grains = 4;
    run_ = create_run_folder({.config = config_, .origins = {}});
  }

  /// A checkpoint without tensors.
  std::string save(int64_t step, const plan::TrainConfig& config) {
    const std::string target =
        checkpoints::checkpoints_of(run_) + "/" + checkpoints::folder_name(step);
    checkpoints::Manifest manifest;
    manifest.step = step;
    manifest.saved_at = "2024-05-01T12:00:00Z";
    manifest.config = config;
    manifest.vocab = 256;
    manifest.identity = "B16 b4 G4 M1 T1 fp32 aten-1.13 avx2 1t";
    manifest.param_digest = std::string(32, '0');
    manifest.world = 3;
    manifest.state = nlohmann::json::object();
    checkpoints::commit_folder(checkpoints::begin_folder(target), target, manifest, {});
    return target;
  }

  Start start(const std::string& path, std::vector<std::string> sets = {},
              const std::string& preset = "") {
    sets.push_back("run.resume=" + path);
    return resolve_start({.preset = preset, .file = "", .sets = sets});
  }

  template <class Kind = UsageError>
  std::string refusal_of(const std::string& path, const std::vector<std::string>& sets = {},
                         const std::string& preset = "") {
    try {
      start(path, sets, preset);
    } catch (const Kind& error) {
      return error.what();
    }
    return "not refused";
  }

  void expect_contains(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "not in: " << text << "\nlooked for: " << part;
  }

  files::TempFolder folder_{"resume"};
  plan::TrainConfig config_ = plan::preset("nano");
  std::string run_;
};

TEST_F(Resume, ARunGoesOnInItsFolderFromItsNewestCheckpoint) {
  save(10, config_);
  save(20, config_);
  fs::create_directories(run_ + "/checkpoints/step_00000030.tmp-1");
  const Start resumed = start(run_ + "/");
  ASSERT_TRUE(resumed.from);
  EXPECT_EQ(resumed.from->run_folder, run_);
  EXPECT_EQ(resumed.from->step, 20);
  EXPECT_EQ(resumed.from->world, 3);
  EXPECT_EQ(resumed.resolved.config.run.steps, 40);
  EXPECT_EQ(resumed.resolved.config.run.resume, "auto") << "its own newest, after a restart too";
  EXPECT_EQ(resumed.resolved.origins.at("run.steps"), "run " + run_ + "/");
  expect_contains(describe(*resumed.from, resumed.resolved.config), "goes on after step 20 of 40");
}

TEST_F(Resume, ARunWithoutCheckpointsBeginsAnewAndSaysSo) {
  const Start resumed = start(run_);
  EXPECT_EQ(resumed.from->run_folder, run_);
  EXPECT_EQ(resumed.from->checkpoint, "");
  expect_contains(describe(*resumed.from, resumed.resolved.config), "begins anew");
}

TEST_F(Resume, ACheckpointBeginsANewRun) {
  const std::string checkpoint = save(20, config_);
  save(30, config_);
  const Start resumed = start(checkpoint);
  EXPECT_EQ(resumed.from->run_folder, "");
  EXPECT_EQ(resumed.from->step, 20);
  EXPECT_EQ(resumed.resolved.config.run.resume, checkpoint)
      << "for a restart before it has its own";

  // That run, before it has a checkpoint of its own.
  const std::string first = run_;
  run_ = create_run_folder(resumed.resolved);
  const Start again = start(run_);
  EXPECT_EQ(again.from->run_folder, run_);
  EXPECT_EQ(again.from->step, 20);
  EXPECT_EQ(again.resolved.config.run.resume, checkpoint);
  save(25, config_);
  EXPECT_EQ(start(run_).from->step, 25);
}

TEST_F(Resume, SettingsComeOnTopOfThoseOfTheRun) {
  save(20, config_);
  const Start resumed = start(run_, {"parallel.shard=zero3", "log.every=5"});
  EXPECT_EQ(resumed.resolved.config.parallel.shard, "zero3");
  EXPECT_EQ(resumed.resolved.config.numerics.grains, 4);
  expect_contains(refusal_of(run_, {"optim.lr=0.5"}), "optim.lr = 0.5, but it was 0.004");
  EXPECT_EQ(start(run_, {"optim.lr=0.5", "run.may_change=optim.lr"}).resolved.config.optim.lr, 0.5);
  expect_contains(refusal_of(run_, {"model.width=64"}), "--from " + run_);
}

/// With a preset or a file the settings are compared, not taken over.
TEST_F(Resume, APresetIsCompared) {
  save(20, config_);
  expect_contains(refusal_of(run_, {}, "nano"), "run.steps = 600, but it was 40");
  const Start resumed = start(run_, {"run.steps=40"}, "nano");
  EXPECT_EQ(resumed.resolved.config.numerics.grains, 4);
  EXPECT_EQ(resumed.resolved.origins.at("run.steps"), "--set");
}

/// What was allowed once stays so: its own settings are the run's until the next checkpoint.
TEST_F(Resume, AChangeBeforeTheNextCheckpointIsStillAllowed) {
  save(20, config_);
  const Start changed = start(run_, {"optim.lr=0.5", "run.may_change=optim.lr"});
  replace_config(run_, changed.resolved, 20);
  EXPECT_EQ(start(run_).resolved.config.optim.lr, 0.5);
  const auto former = nlohmann::json::parse(read_file(run_ + "/config_before_step_20.json"));
  EXPECT_EQ(former, plan::to_json(config_));
  // Once more from there: what is kept are the settings of the steps before.
  replace_config(run_, start(run_, {"log.every=7"}).resolved, 20);
  EXPECT_EQ(nlohmann::json::parse(read_file(run_ + "/config_before_step_20.json")), former);
  EXPECT_EQ(start(run_).resolved.config.log.every, 7);
}

TEST_F(Resume, WhatIsNeitherRunNorCheckpointIsNamed) {
  expect_contains(refusal_of(folder_.file("none")), folder_.file("none") + ": it is not there");
  std::ofstream(folder_.file("model.safetensors")) << "x";
  expect_contains(refusal_of(folder_.file("model.safetensors")), "--from ");
  expect_contains(refusal_of(config_.run.dir), "neither a run folder nor a checkpoint");
  save(20, config_);
  expect_contains(refusal_of(run_, {"run.from=" + run_}), "Leave out one of the two");
}

TEST_F(Resume, ADamagedCheckpointIsPassedOverOnlyIfAsked) {
  save(10, config_);
  const std::string newest = save(20, config_);
  fs::resize_file(newest + "/manifest.json", 100);
  const std::string said = refusal_of<StateError>(run_);
  expect_contains(said, newest + "/manifest.json");
  expect_contains(said, "--set checkpoint.fall_back=true (step 10)");
  EXPECT_EQ(start(run_, {"checkpoint.fall_back=true"}).from->step, 10);
}

TEST_F(Resume, ARunIsOverWhenItHasMadeItsSteps) {
  save(40, config_);
  const auto over = [this](const std::vector<std::string>& sets = {}) {
    const Start resumed = start(run_, sets);
    return is_over(*resumed.from, resumed.resolved.config);
  };
  EXPECT_FALSE(over());
  std::ofstream(run_ + "/summary.json") << R"({"steps": 40})";
  EXPECT_FALSE(over()) << "killed while it wrote its weights";
  std::ofstream(run_ + "/final.safetensors") << "x";
  EXPECT_TRUE(over());
  EXPECT_FALSE(over({"run.steps=50", "run.may_change=run.steps"}));
  std::ofstream(run_ + "/summary.json") << R"({"steps": 30})";
  EXPECT_FALSE(over()) << "it was stopped";
}

TEST_F(Resume, OnlyWhatNoProcessWritesIsRemoved) {
  const std::string dead = "999999999";
  const std::string alive = std::to_string(getppid());
  fs::create_directories(run_ + "/checkpoints/step_00000020.tmp-" + dead + "/x");
  fs::create_directories(run_ + "/checkpoints/step_00000030.tmp-" + alive);
  std::ofstream(run_ + "/final.safetensors.tmp-" + dead + "-0") << "x";
  std::ofstream(run_ + "/final.safetensors.tmp-" + alive + "-0") << "x";
  remove_unfinished_files(run_);
  EXPECT_FALSE(fs::exists(run_ + "/checkpoints/step_00000020.tmp-" + dead));
  EXPECT_FALSE(fs::exists(run_ + "/final.safetensors.tmp-" + dead + "-0"));
  EXPECT_TRUE(fs::exists(run_ + "/checkpoints/step_00000030.tmp-" + alive));
  EXPECT_TRUE(fs::exists(run_ + "/final.safetensors.tmp-" + alive + "-0"));
  EXPECT_TRUE(fs::exists(run_ + "/config.json"));
}

TEST_F(Resume, EachStartHasLogsOfItsOwn) {
  EXPECT_EQ(new_log_folder(run_), run_ + "/resume_1");
  EXPECT_EQ(new_log_folder(run_), run_ + "/resume_2");
}

}  // namespace
}  // namespace lockstep::cli
