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
  std::vector<std::string> words = {"lockstep", "train", "-n", std::to_string(ranks)};
  const std::vector<std::string> tiny = tiny_nano();
  words.insert(words.end(), tiny.begin(), tiny.end());
  words.insert(words.end(), {"--set", "run.steps=100000", "--set", "log.eval_every=0", "--set",
                             "run.dir=" + runs.path()});
  return words;
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

/// Stopped most of the time, but never for long: nothing fails, and the log says who is waited for.
TEST(Faults, ASlowRankIsNamedWhileTheJobRuns) {
  const TempFolder runs;
  std::vector<std::string> arguments = long_run(runs, 3);
  arguments.insert(arguments.end(), {"--set", "log.every=5"});
  Command job(arguments);
  ASSERT_TRUE(eventually([&] { return steps_logged(runs) >= 3; }));
  const pid_t slow = rank_process(job, 2);
  ASSERT_TRUE(eventually([&] {
    ::kill(slow, SIGSTOP);
    std::this_thread::sleep_for(60ms);
    ::kill(slow, SIGCONT);
    return occurrences(job.errors_so_far(), "rank 2 is slow: ") > 0;
  })) << job.errors_so_far();
  EXPECT_TRUE(eventually([&] {
    return occurrences(job.errors_so_far(), "rank 2 keeps up again") > 0;
  })) << job.errors_so_far();
  ::kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait().exit_code, 75);
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
  EXPECT_LT(std::chrono::steady_clock::now() - stopped, 2s + 1s + 500ms)
      << "half a second for the step under way";
  EXPECT_EQ(result.exit_code, 5) << result.err;
  EXPECT_NE(result.err.find("rank 2"), std::string::npos) << result.err;
  expect_gone(ranks);
}

TEST(Faults, AStoppedProcessWithoutPeersIsMissedByTheLauncher) {
  for (const char* engine : {"shm", "threads"}) {
    const TempFolder runs;
    const bool threads = std::string(engine) == "threads";
    std::vector<std::string> arguments = long_run(runs, threads ? 2 : 1);
    arguments.insert(arguments.end(),
                     {"--set", "comm.timeout_s=2", "--set", std::string("comm.engine=") + engine});
    Command job(arguments);
    ASSERT_TRUE(eventually([&] { return steps_logged(runs) >= 1; }));
    const std::vector<pid_t> processes = children_of(job.pid());
    ASSERT_EQ(processes.size(), 1u);
    ::kill(processes[0], SIGSTOP);
    const auto stopped = std::chrono::steady_clock::now();
    const CommandResult result = job.wait();
    EXPECT_LT(std::chrono::steady_clock::now() - stopped, 2s + 2s) << engine;
    EXPECT_EQ(result.exit_code, 5) << result.err;
    EXPECT_NE(result.err.find("was stopped (SIGSTOP) for 2."), std::string::npos) << result.err;
    expect_gone(processes);
  }
}

/// The first file of the only run whose name begins so; empty if there is none.
std::string file_of_run(const TempFolder& runs, const std::string& start) {
  std::error_code error;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(runs.path(), error)) {
    if (entry.path().filename().string().starts_with(start)) return entry.path();
  }
  return "";
}

TEST(Faults, ARequestToSaveOrToTellDisturbsNothing) {
  const TempFolder runs;
  Command job(long_run(runs, 2));
  ASSERT_TRUE(eventually([&] { return steps_logged(runs) >= 2; }));
  ::kill(job.pid(), SIGUSR1);
  ASSERT_TRUE(eventually([&] { return !file_of_run(runs, "step_").empty(); }));
  ::kill(job.pid(), SIGUSR2);
  for (const char* log : {"rank_0000.log", "rank_0001.log"}) {
    ASSERT_TRUE(eventually([&] {
      return text_of(file_of_run(runs, log)).find("  thread ") != std::string::npos;
    })) << log;
    EXPECT_NE(text_of(file_of_run(runs, log)).find(" of 2] SIGUSR2: in "), std::string::npos);
  }
  EXPECT_NE(text_of(file_of_run(runs, "last_operations.txt")).find("rank 1 at step "),
            std::string::npos);
  const int64_t steps = steps_logged(runs);
  ASSERT_TRUE(eventually([&] { return steps_logged(runs) >= steps + 2; })) << "it goes on";
  ::kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait().exit_code, 75);
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
