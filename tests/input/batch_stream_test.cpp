#include "lockstep/input/batch_stream.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/files/temp_folder.h"
#include "tests/input/token_files.h"

namespace lockstep::input {
namespace {

constexpr int64_t kContext = 5;

class BatchStreamTest : public ::testing::Test {
 protected:
  /// Opens a file of `count` tokens in which token i has id i.
  std::shared_ptr<const TokenFile> tokens(int count) {
    std::vector<uint16_t> ids;
    for (int i = 0; i < count; ++i) ids.push_back(static_cast<uint16_t>(i));
    put_tokens(path_, ids);
    return TokenFile::open(path_);
  }

  Sampler sampler(const TokenFile& file) const {
    return {.tokens = file.size(), .context = kContext, .seed = 7};
  }

  files::TempFolder folder_{"stream-test"};
  std::string path_ = folder_.file("train.bin");
};

/// Three ranks on four leaves: leaves 0 and 3, 1 and a phantom, 2 and a phantom. Together they hold
/// each sample of each step once, with its window and its target.
TEST_F(BatchStreamTest, RanksTogetherHoldEverySampleOnce) {
  const auto file = tokens(60);
  const auto batch = plan::plan_batch(16, 2, 4);
  const auto leaves = plan::plan_leaves(4, 3, plan::LeafAssignment::round_robin);
  std::map<int64_t, int> count;  // by sample of the run
  for (int rank = 0; rank < 3; ++rank) {
    const auto rounds = leaves.rounds_of(rank, batch.micro_batches_per_grain);
    BatchStream stream(file, sampler(*file), batch, rounds, 3, 7);
    for (int64_t step = 3; step < 7; ++step) {
      const auto micro_batches = stream.next();
      ASSERT_EQ(micro_batches.size(), rounds.size());
      for (size_t i = 0; i < rounds.size(); ++i) {
        const auto& micro = micro_batches[i];
        EXPECT_EQ(micro.round, rounds[i]);
        EXPECT_EQ(micro.context, kContext);
        if (micro.round.phantom()) {
          EXPECT_TRUE(micro.tokens.empty());
          EXPECT_EQ(micro.samples.size(), 0);
          continue;
        }
        EXPECT_EQ(micro.samples, batch.samples(micro.round.leaf, micro.round.micro));
        ASSERT_EQ(micro.tokens.size(), static_cast<size_t>(2 * (kContext + 1)));
        for (int64_t row = 0; row < 2; ++row) {
          const int64_t sample = step * 16 + micro.samples.lo + row;
          ++count[sample];
          for (int64_t i_token = 0; i_token <= kContext; ++i_token) {
            ASSERT_EQ(micro.tokens[static_cast<size_t>(row * (kContext + 1) + i_token)],
                      sampler(*file).first_token(sample) + i_token);
          }
        }
      }
    }
    EXPECT_THROW(stream.next(), UsageError) << "past the last step";
    EXPECT_THROW(stream.next(), UsageError);
  }
  ASSERT_EQ(count.size(), 4u * 16u);
  for (const auto& [sample, times] : count) EXPECT_EQ(times, 1) << sample;
}

TEST_F(BatchStreamTest, AnyReadAheadGivesTheSame) {
  const auto file = tokens(400);
  const auto batch = plan::plan_batch(4, 2, 2);
  const std::vector<plan::Round> rounds = {{0, 0}, {1, 0}};
  std::vector<std::vector<int64_t>> first;
  for (const int ahead : {1, 2, 3, 50}) {
    std::vector<std::vector<int64_t>> all;
    BatchStream stream(file, sampler(*file), batch, rounds, 0, 30, ahead);
    for (int step = 0; step < 30; ++step) {
      for (auto& micro : stream.next()) all.push_back(std::move(micro.tokens));
    }
    if (first.empty()) first = all;
    EXPECT_EQ(all, first) << ahead;
    EXPECT_GE(stream.waited_seconds(), 0);
  }
}

TEST_F(BatchStreamTest, AStreamOfNoStepsEndsAtOnce) {
  const auto file = tokens(60);
  BatchStream stream(file, sampler(*file), plan::plan_batch(2, 2, 1), {{0, 0}}, 5, 5);
  EXPECT_THROW(stream.next(), UsageError);
}

TEST_F(BatchStreamTest, DroppedWhileItReads) {
  const auto file = tokens(60);
  const auto batch = plan::plan_batch(64, 64, 1);
  for (int taken = 0; taken < 3; ++taken) {
    for (int round = 0; round < 20; ++round) {
      BatchStream stream(file, sampler(*file), batch, {{0, 0}}, 0, 1'000'000, 1 + taken);
      for (int i = 0; i < taken; ++i) EXPECT_EQ(stream.next().size(), 1u);
    }
  }
}

TEST_F(BatchStreamTest, AnErrorOfTheReaderComesOutOfNext) {
  const auto file = tokens(1500);
  std::filesystem::resize_file(path_, 100);
  BatchStream stream(file, sampler(*file), plan::plan_batch(2, 2, 1), {{0, 0}}, 0, 10);
  for (int again = 0; again < 2; ++again) {
    const std::string message = environment_error([&] { stream.next(); });
    EXPECT_NE(message.find("cut short"), std::string::npos) << message;
  }
}

/// Steps read before the error are good, and come first.
TEST_F(BatchStreamTest, StepsBeforeAnErrorAreGivenOut) {
  const auto file = tokens(1500);
  BatchStream stream(file, sampler(*file), plan::plan_batch(2, 2, 1), {{0, 0}}, 0, 1'000'000, 2);
  EXPECT_EQ(stream.next().size(), 1u);
  std::filesystem::resize_file(path_, 100);
  int good = 0;
  std::string message;
  while (message.empty()) {
    message = environment_error([&] {
      stream.next();
      ++good;
    });
  }
  EXPECT_LE(good, 3) << "at most the steps read ahead, and one being read";
  EXPECT_NE(message.find("cut short"), std::string::npos) << message;
}

TEST_F(BatchStreamTest, WhatCannotWorkIsRefusedAtOnce) {
  const auto file = tokens(60);
  const auto batch = plan::plan_batch(2, 2, 1);
  const auto make = [&](Sampler sampler, int ahead) {
    BatchStream(file, sampler, batch, {{0, 0}}, 0, 1, ahead);
  };
  EXPECT_THROW(make({.tokens = 61, .context = 5}, 2), UsageError);
  EXPECT_THROW(make({.tokens = 5, .context = 5}, 2), UsageError);
  EXPECT_THROW(make({.tokens = 60, .context = 60}, 2), EnvironmentError);
  EXPECT_THROW(make({.tokens = 60, .context = 5}, 0), UsageError);
}

/// The thread carries its name, and is gone with the stream.
TEST_F(BatchStreamTest, TheReaderIsCalledLsInput) {
  const auto readers = [] {
    int count = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name;
      std::getline(std::ifstream(task.path() / "comm"), name);
      if (name == "ls-input") ++count;
    }
    return count;
  };
  const auto file = tokens(60);
  {
    BatchStream stream(file, sampler(*file), plan::plan_batch(2, 2, 1), {{0, 0}}, 0, 100, 1);
    stream.next();
    EXPECT_EQ(readers(), 1);
  }
  EXPECT_EQ(readers(), 0);
}

}  // namespace
}  // namespace lockstep::input
