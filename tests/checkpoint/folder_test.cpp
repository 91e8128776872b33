// How a checkpoint's folder comes to be, is found, and goes.

#include "lockstep/checkpoint/folder.h"

#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "tests/checkpoint/saved.h"
#include "tests/files/on_disk.h"
#include "tests/support/temp_folder.h"

namespace lockstep::checkpoints {
namespace {

namespace fs = std::filesystem;
using checkpoints::testing::save_some;
using on_disk::message_of;

class CheckpointFolder : public ::testing::Test {
 protected:
  CheckpointFolder() { fs::create_directories(run_); }
  std::string folder_of(int64_t step) const {
    return checkpoints_of(run_) + "/" + folder_name(step);
  }
  std::vector<int64_t> steps() const {
    std::vector<int64_t> steps;
    for (const Found& found : complete_checkpoints(run_)) steps.push_back(found.step);
    return steps;
  }

  lockstep::testing::TempFolder temporary_;
  std::string run_ = temporary_.file("run");
};

std::vector<int64_t> steps_of(const std::vector<Found>& found) {
  std::vector<int64_t> steps;
  for (const Found& checkpoint : found) steps.push_back(checkpoint.step);
  return steps;
}

TEST_F(CheckpointFolder, NewestIsTheLargestNumberNotTheLastName) {
  EXPECT_TRUE(steps().empty());
  for (const int64_t step : {2, 10, 99999999, 100000000, 9}) save_some(folder_of(step), step);
  EXPECT_EQ(steps(), (std::vector<int64_t>{100000000, 99999999, 10, 9, 2}));
  EXPECT_EQ(folder_name(20), "step_00000020");
}

TEST_F(CheckpointFolder, OneWithoutItsManifestIsNone) {
  save_some(folder_of(10), 10);
  save_some(folder_of(20), 20);
  fs::remove(folder_of(20) + "/" + kManifestFile);
  const std::string unfinished = begin_folder(folder_of(30));
  fs::create_directories(checkpoints_of(run_) + "/step_x");
  EXPECT_EQ(steps(), std::vector<int64_t>{10});
  discard_folder(unfinished);
  EXPECT_FALSE(fs::exists(unfinished));
}

TEST_F(CheckpointFolder, ARenamedOneIsRefused) {
  save_some(folder_of(10), 10);
  fs::rename(folder_of(10), folder_of(30));
  const std::string message = message_of<StateError>([this] { read_manifest(folder_of(30)); });
  EXPECT_NE(message.find("it is of step 10"), std::string::npos) << message;
}

/// A run's folder that somebody removed is not made again, as if all were well.
TEST_F(CheckpointFolder, NoneBeginsWhereTheRunIsGone) {
  fs::remove_all(run_);
  EXPECT_THROW(begin_folder(folder_of(10)), StateError);
  EXPECT_FALSE(fs::exists(run_));
}

TEST_F(CheckpointFolder, LaterOnesAreSetAsideWithTheirContents) {
  for (const int64_t step : {10, 20, 30}) save_some(folder_of(step), step);
  EXPECT_EQ(set_aside(run_, 10),
            (std::vector<std::string>{folder_of(30) + ".left", folder_of(20) + ".left"}));
  EXPECT_EQ(steps(), std::vector<int64_t>{10});
  EXPECT_EQ(read_manifest(folder_of(20) + ".left").step, 20);
  save_some(folder_of(20), 20);
  EXPECT_EQ(set_aside(run_, 10), std::vector<std::string>{folder_of(20) + ".left-2"});
}

TEST_F(CheckpointFolder, TheSameStepAgainReplacesIt) {
  const Manifest before = save_some(folder_of(10), 10);
  const Manifest after = save_some(folder_of(10), 10, /*more=*/1);
  EXPECT_NE(before.param_digest, after.param_digest);
  EXPECT_EQ(read_manifest(folder_of(10)).param_digest, after.param_digest);
  EXPECT_NO_THROW(Reader(folder_of(10)).verify());
  EXPECT_EQ(on_disk::files_in(checkpoints_of(run_)), 1);  // nothing is left of the old one
}

TEST_F(CheckpointFolder, WhatIsNotWholeIsNotCommitted) {
  const Manifest before = save_some(folder_of(10), 10);
  const Index index = read_index(folder_of(10), before);
  Index with_a_hole = index;
  with_a_hole.tensors[0].slices.pop_back();
  const std::string unfinished = begin_folder(folder_of(10));
  EXPECT_THROW(commit_folder(unfinished, folder_of(10), before, with_a_hole), StateError);
  EXPECT_NO_THROW(Reader(folder_of(10)).verify());
  discard_folder(unfinished);
}

TEST_F(CheckpointFolder, PruningKeepsTheNewestAndEveryMth) {
  for (int64_t step = 5; step <= 40; step += 5) save_some(folder_of(step), step);
  EXPECT_TRUE(to_prune(run_, 8, 0).empty());
  EXPECT_EQ(steps_of(to_prune(run_, 2, 20)), (std::vector<int64_t>{5, 10, 15, 25, 30}));
  EXPECT_EQ(steps().size(), 8u);  // asking removes nothing
  EXPECT_EQ(steps_of(prune(run_, 2, 20)), (std::vector<int64_t>{5, 10, 15, 25, 30}));
  EXPECT_EQ(steps(), (std::vector<int64_t>{40, 35, 20}));
  EXPECT_EQ(steps_of(prune(run_, 1, 0)), (std::vector<int64_t>{20, 35}));
  EXPECT_EQ(steps(), std::vector<int64_t>{40});
  EXPECT_NO_THROW(Reader(folder_of(40)).verify());
}

TEST_F(CheckpointFolder, OnlyTheUnfinishedOfTheDeadGo) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  const auto unfinished = [this](pid_t owner) {
    const std::string folder = base::str(folder_of(10), ".tmp-", owner);
    fs::create_directories(folder);
    return folder;
  };
  save_some(folder_of(10), 10);
  const std::string dead = unfinished(child), mine = unfinished(getpid()),
                    alive = unfinished(getppid());
  remove_unfinished(run_);
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_FALSE(fs::exists(mine));
  EXPECT_TRUE(fs::exists(alive));
  EXPECT_EQ(steps(), std::vector<int64_t>{10});
}

TEST_F(CheckpointFolder, APathStandsForACheckpoint) {
  const auto refusal = [](const std::string& path) {
    return message_of<StateError>([&path] { checkpoint_at(path); });
  };
  EXPECT_NE(refusal(run_ + "-2").find("there is no run or checkpoint"), std::string::npos);
  fs::create_directories(run_);
  EXPECT_NE(refusal(run_).find("checkpoint.every=STEPS"), std::string::npos);
  fs::create_directories(checkpoints_of(run_));
  EXPECT_NE(refusal(run_).find("holds no complete checkpoint"), std::string::npos);
  save_some(folder_of(10), 10);
  save_some(folder_of(20), 20);
  EXPECT_EQ(checkpoint_at(run_), folder_of(20));
  EXPECT_EQ(checkpoint_at(folder_of(10)), folder_of(10));
}

}  // namespace
}  // namespace lockstep::checkpoints
