// What bisect reads of a run, and what it refuses to compare: no rank is started.
#include "lockstep/cli/bisect_record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/cli/bisect_settings.h"
#include "lockstep/cli/run_folder.h"
#include "lockstep/files/temp_folder.h"

namespace lockstep::cli {
namespace {

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

void save(const std::string& target, int64_t step, const std::string& digest, int world) {
  checkpoints::Manifest manifest;
  manifest.step = step;
  manifest.saved_at = "2024-05-01T12:00:00Z";
  manifest.identity = "B16 b4 G4 M1 T1 fp32 aten-1.13 avx2 1t";
  manifest.param_digest = digest;
  manifest.world = world;
  manifest.state = nlohmann::json::object();
  checkpoints::commit_folder(checkpoints::begin_folder(target), target, manifest, {});
}

class BisectRecord : public testing::Test {
 protected:
  BisectRecord() { run_ = create(config_); }

  std::string create(plan::TrainConfig config) {
    config.run.dir = folder_.file("runs");
    const std::string run = create_run_folder({.config = config, .origins = {}});
    write(run + "/metrics.jsonl",
          "{\"step\": 1, \"loss\": 3.5, \"grad_norm\": 0.1}\n"
          "{\"step\": 1, \"val_loss\": 3.25}\n"
          "{\"step\": 2, \"loss\": null, \"grad_norm\": 0.25, \"param_digest\": \"ab\"}\n");
    return run;
  }

  template <class Kind>
  static std::string refusal(const std::function<void()>& work) {
    try {
      work();
    } catch (const Kind& error) {
      return error.what();
    }
    return "not refused";
  }

  files::TempFolder folder_{"bisect-record"};
  plan::TrainConfig config_ = plan::preset("nano");
  std::string run_;
};

TEST_F(BisectRecord, FiguresComeBackWithAllTheirDigits) {
  const std::string path = folder_.file("metrics.jsonl");
  const double loss = 0.1 + 0.2;
  write(path,
        "{\"step\": 7, \"loss\": 0.30000000000000004, \"grad_norm\": 1e-300}\n"
        "{\"step\": 8, \"loss\": 1, \"grad_n");  // the run was killed here
  const auto figures = read_figures(path);
  ASSERT_EQ(figures.size(), 1u);
  EXPECT_EQ(figures.at(7).loss, loss);
  EXPECT_EQ(figures.at(7).grad_norm, 1e-300);
  EXPECT_EQ(figures.at(7).param_digest, "");
}

TEST_F(BisectRecord, ALineThatIsNoStepIsNamed) {
  write(run_ + "/metrics.jsonl", "{\"step\": 1, \"loss\": 3, \"grad_norm\": 1}\n{\"loss\": 3}\n");
  const std::string said = refusal<StateError>([&] { read_run(run_); });
  EXPECT_NE(said.find("metrics.jsonl, line 2: "), std::string::npos) << said;
  write(run_ + "/metrics.jsonl", "");
  EXPECT_NE(refusal<StateError>([&] { read_run(run_); }).find("has no step"), std::string::npos);
  const std::string none = refusal<UsageError>([&] { read_run(folder_.path()); });
  EXPECT_NE(none.find("is no run folder"), std::string::npos) << none;
}

TEST_F(BisectRecord, WhatIsUnequalIsSaidInTheOrderOfAStep) {
  const StepFigures one{.loss = 3, .grad_norm = 1, .param_digest = "ab"};
  StepFigures other = one;
  EXPECT_EQ(first_unequal(one, other), "");
  other.param_digest = "cd";
  EXPECT_EQ(first_unequal(one, other), "param_digest");
  other.grad_norm = std::nextafter(1, 2);
  EXPECT_EQ(first_unequal(one, other), "grad_norm");
  other.loss = std::nextafter(3, 2);
  EXPECT_EQ(first_unequal(one, other), "loss");
  const StepFigures lost{.loss = std::nan(""), .grad_norm = 1, .param_digest = ""};
  EXPECT_EQ(first_unequal(lost, lost), "");
  EXPECT_EQ(first_unequal(lost, one), "loss");
  other = one;
  other.param_digest = "";  // was not taken: nothing is known
  EXPECT_EQ(first_unequal(one, other), "");
}

TEST_F(BisectRecord, ReadsSettingsOfEachPartStartsAndTheEnd) {
  plan::TrainConfig later = config_;
  later.optim.lr = 1e-3;
  replace_config(run_, {.config = later, .origins = {}}, 20);
  later.optim.lr = 1e-4;
  replace_config(run_, {.config = later, .origins = {}}, 30);
  const std::string folder = checkpoints::checkpoints_of(run_) + "/";
  save(folder + checkpoints::folder_name(20), 20, std::string(32, 'a'), 2);
  save(folder + checkpoints::folder_name(30), 30, std::string(32, 'b'), 3);
  save(folder + checkpoints::folder_name(25), 25, std::string(32, 'c'), 3);
  write(folder + checkpoints::folder_name(25) + "/manifest.json", "{}");  // cannot be used
  write(run_ + "/summary.json",
        R"({"steps": 1, "param_digest": "ff", "identity": "B1", "ranks": [1, 2, 3, 4]})");
  const RunRecord run = read_run(run_ + "/");
  EXPECT_EQ(run.folder, run_);
  EXPECT_EQ(run.settings_of(1).optim.lr, config_.optim.lr);
  EXPECT_EQ(run.settings_of(20).optim.lr, config_.optim.lr);
  EXPECT_EQ(run.settings_of(21).optim.lr, 1e-3);
  EXPECT_EQ(run.settings_of(30).optim.lr, 1e-3);
  EXPECT_EQ(run.settings_of(31).optim.lr, 1e-4);
  ASSERT_EQ(run.starts.size(), 3u);
  EXPECT_EQ(run.starts[0].step, 0);
  EXPECT_EQ(run.start_before(29)->step, 20);
  EXPECT_EQ(run.start_at(29), nullptr);
  EXPECT_EQ(run.start_at(30)->param_digest, std::string(32, 'b'));
  EXPECT_EQ(run.ranks_of(20), 2);
  EXPECT_EQ(run.ranks_of(21), 3);
  EXPECT_EQ(run.ranks_of(31), 4);
  EXPECT_EQ(run.alike_until(0), 20);
  EXPECT_EQ(run.alike_until(20), 30);
  EXPECT_GT(run.alike_until(30), 1000);
  EXPECT_EQ(run.identity, "B1");
  EXPECT_EQ(run.steps.at(1).param_digest, "ff");  // of the end
  EXPECT_TRUE(std::isnan(run.steps.at(2).loss));
}

TEST_F(BisectRecord, OtherRanksMadeWhatTheySaved) {
  const std::string folder = checkpoints::checkpoints_of(run_) + "/";
  for (const auto& [step, world] : {std::pair{10, 1}, {20, 1}, {30, 2}}) {
    save(folder + checkpoints::folder_name(step), step, std::string(32, 'a'), world);
  }
  const RunRecord run = read_run(run_);
  EXPECT_EQ(run.alike_until(0), 20);
  EXPECT_EQ(run.alike_until(10), 20);
  EXPECT_EQ(run.ranks_of(20), 1);
  EXPECT_EQ(run.ranks_of(21), 2);
  EXPECT_GT(run.alike_until(20), 1000);
}

TEST_F(BisectRecord, ARunThatBeganAtACheckpointStartsThere) {
  const std::string other = folder_.file("other");
  save(other, 12, std::string(32, 'a'), 2);
  config_.run.resume = other;
  const RunRecord run = read_run(create(config_));
  ASSERT_EQ(run.starts.size(), 1u);
  EXPECT_EQ(run.starts[0].step, 12);
  EXPECT_EQ(run.start_before(11), nullptr);
  std::filesystem::remove_all(other);
  EXPECT_TRUE(read_run(create(config_)).starts.empty());
}

TEST_F(BisectRecord, SettingsThatDifferAreListedWhatMattersFirst) {
  plan::TrainConfig later = config_;
  later.optim.lr = 1e-3;
  later.parallel.shard = "zero3";
  later.log.every = 7;
  later.run.name = "b";
  replace_config(run_, {.config = later, .origins = {}}, 20);
  const std::vector<SettingDifference> found =
      settings_that_differ(read_run(create(config_)), read_run(run_));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].key, "optim.lr");
  EXPECT_EQ(found[0].a, "0.004");
  EXPECT_EQ(found[0].b, "0.004, from step 21 on 0.001");
  EXPECT_FALSE(found[0].free);
  EXPECT_EQ(found[1].key, "parallel.shard");
  EXPECT_TRUE(found[1].free);
}

TEST_F(BisectRecord, OtherModelsBatchesAndSumsAreNotCompared) {
  const RunRecord run = read_run(run_);
  const auto said = [&](const std::function<void(plan::TrainConfig&)>& change) {
    plan::TrainConfig other = config_;
    change(other);
    const RunRecord of_other = read_run(create(other));
    return refusal<UsageError>([&] { require_comparable(run, of_other); });
  };
  EXPECT_NE(said([](auto& config) { config.model.width = 64; }).find("model.width is 128 in "),
            std::string::npos);
  EXPECT_NE(said([](auto& config) { config.data.global_batch = 32; }).find("data.global_batch"),
            std::string::npos);
  EXPECT_NE(said([](auto& config) {
              config.numerics.tensor_grains = 2;
            }).find("numerics.tensor_grains is 1 in "),
            std::string::npos);
  // The same by another word, and what a result may be compared by.
  EXPECT_EQ(said([](auto& config) {
              config.model.ffn = 512;
              config.optim.lr = 1;
              config.run.seed = 2;
              config.parallel.shard = "zero1";
              config.numerics.kernels = "aten";
            }),
            "not refused");
}

}  // namespace
}  // namespace lockstep::cli
