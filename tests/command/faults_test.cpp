// Ranks that die, stall or are asked to stop: the right end, in time, and nothing left behind.

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/command/command.h"

namespace lockstep::testing {
namespace {

using namespace std::chrono_literals;

/// Until `done` holds, or 60 s have gone by.
bool eventually(const std::function<bool()>& done) {
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

int64_t steps_logged(const TempFolder& runs) {
  int64_t lines = 0;
  std::error_code error;
  for (const auto& run : std::filesystem::directory_iterator(runs.path(), error)) {
    std::ifstream metrics(run.path() / "metrics.jsonl");
    std::string line;
    while (std::getline(metrics, line)) ++lines;
  }
  return lines;
}

std::vector<std::string> long_run(const TempFolder& runs, int ranks) {
  return {"lockstep", "train",
          "--preset", "nano",
          "-n",       std::to_string(ranks),
          "--set",    "run.steps=100000",
          "--set",    "log.eval_every=0",
          "--set",    "run.dir=" + runs.path()};
}

pid_t rank_process(const Command& job, int rank) {
  for (const pid_t child : children_of(job.pid())) {
    if (environment_of(child, "LOCKSTEP_RANK") == std::to_string(rank)) return child;
  }
  return -1;
}

void expect_gone(const std::vector<pid_t>& processes) {
  for (const pid_t process : processes) EXPECT_NE(::kill(process, 0), 0) << process << " is alive";
}

size_t occurrences(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST(Faults, AKilledRankEndsTheJobWithinFiveSecondsNamingRankAndStep) {
  const TempFolder runs;
  Command job(long_run(runs, 3));
  ASSERT_TRUE(eventually([&] { return steps_logged(runs) >= 3; }));
  const std::vector<pid_t> ranks = children_of(job.pid());
  ASSERT_EQ(ranks.size(), 3u);
  ::kill(rank_process(job, 1), SIGKILL);
  const auto killed = std::chrono::steady_clock::now();
  const CommandResult result = job.wait();
  EXPECT_LT(std::chrono::steady_clock::now() - killed, 5s);
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_EQ(occurrences(result.err, "[rank "), 1u) << result.err;
  EXPECT_NE(result.err.find("[rank 1 of 3]"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("step "), std::string::npos) << result.err;
  expect_gone(ranks);
}

TEST(Faults, AStalledRankIsNamedWhenTimeRunsOut) {
  const TempFolder runs;
  std::vector<std::string> arguments = long_run(runs, 3);
  arguments.insert(arguments.end(), {"--set", "comm.timeout_s=2"});
  Command job(arguments);
  ASSERT_TRUE(eventually([&] { return steps_logged(runs) >= 3; }));
  const std::vector<pid_t> ranks = children_of(job.pid());
  ::kill(rank_process(job, 2), SIGSTOP);
  const auto stopped = std::chrono::steady_clock::now();
  const CommandResult result = job.wait();
  EXPECT_LT(std::chrono::steady_clock::now() - stopped, 10s);
  EXPECT_EQ(result.exit_code, 5) << result.err;
  EXPECT_NE(result.err.find("rank 2"), std::string::npos) << result.err;
  expect_gone(ranks);
}

TEST(Faults, TheLaunchersDeathTakesItsRanksAlong) {
  const TempFolder runs;
  Command job(long_run(runs, 2));
  ASSERT_TRUE(eventually([&] { return steps_logged(runs) >= 1; }));
  const std::vector<pid_t> ranks = children_of(job.pid());
  ::kill(job.pid(), SIGKILL);
  job.wait();
  EXPECT_TRUE(eventually([&] {
    for (const pid_t rank : ranks) {
      if (::kill(rank, 0) == 0) return false;
    }
    return true;
  }));
}

TEST(Faults, ARequestToStopFinishesTheStepAndSaves) {
  const TempFolder runs;
  for (const int signal : {SIGTERM, SIGINT}) {
    const TempFolder own;
    Command job(long_run(own, 2));
    ASSERT_TRUE(eventually([&] { return steps_logged(own) >= 2; }));
    const std::vector<pid_t> ranks = children_of(job.pid());
    ::kill(job.pid(), signal);
    const CommandResult result = job.wait();
    EXPECT_EQ(result.exit_code, 75) << result.err;
    EXPECT_NE(result.err.find("stopped on request after step"), std::string::npos) << result.err;
    for (const auto& run : std::filesystem::directory_iterator(own.path())) {
      EXPECT_TRUE(std::filesystem::exists(run.path() / "final.safetensors"));
    }
    expect_gone(ranks);
  }
}

}  // namespace
}  // namespace lockstep::testing
