// A long run holds as much at its end as at its beginning: no descriptor, no memory is kept a step.

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "tests/command/command.h"

namespace lockstep::testing {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

struct Held {
  int64_t resident_bytes = 0;
  int64_t descriptors = 0;
};

Held held_by(pid_t process) {
  const std::string folder = "/proc/" + std::to_string(process);
  std::ifstream statm(folder + "/statm");
  int64_t all = 0, resident = 0;
  statm >> all >> resident;
  return {.resident_bytes = resident * sysconf(_SC_PAGESIZE),
          .descriptors = std::distance(fs::directory_iterator(folder + "/fd"), {})};
}

/// Waits until metrics.jsonl has `steps` lines; false if the job has none after two minutes.
bool logged(const TempFolder& runs, int64_t steps) {
  const auto deadline = std::chrono::steady_clock::now() + 120s;
  while (std::chrono::steady_clock::now() < deadline) {
    std::error_code error;
    for (const auto& run : fs::directory_iterator(runs.path(), error)) {
      std::ifstream metrics(run.path() / "metrics.jsonl");
      int64_t lines = 0;
      for (std::string line; std::getline(metrics, line);) ++lines;
      if (lines >= steps) return true;
    }
    std::this_thread::sleep_for(20ms);
  }
  return false;
}

TEST(Flat, DescriptorsAndMemoryOverTwoThousandSteps) {
  const TempFolder runs;
  Command job({"lockstep", "train",
               "--preset", "nano",
               "-n",       "2",
               "--set",    "run.steps=1000000",
               "--set",    "model.layers=1",
               "--set",    "model.width=16",
               "--set",    "model.heads=2",
               "--set",    "model.context=8",
               "--set",    "log.eval_every=0",
               "--set",    "run.dir=" + runs.path()});
  ASSERT_TRUE(logged(runs, 200));
  const std::vector<pid_t> ranks = children_of(job.pid());
  ASSERT_EQ(ranks.size(), 2u);
  std::vector<Held> early;
  for (const pid_t rank : ranks) early.push_back(held_by(rank));
  ASSERT_TRUE(logged(runs, 2000));
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const Held late = held_by(ranks[rank]);
    EXPECT_GT(early[rank].resident_bytes, 0);
    EXPECT_EQ(late.descriptors, early[rank].descriptors);
    // Grows by design: 8 bytes a step of step times, and up to 64 KiB of events before they are
    // written. The rest of the bound is a page table's and an allocator's granularity.
    EXPECT_LE(late.resident_bytes - early[rank].resident_bytes, 1 << 20);
  }
  ::kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait().exit_code, 75);
}

}  // namespace
}  // namespace lockstep::testing
