// What a rank does on being asked, while it computes and while it hangs. Ranks are this program.

#include "lockstep/worker/rank_signals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>
#include <vector>

#include "lockstep/base/str.h"
#include "lockstep/launch/job.h"
#include "lockstep/worker/thread_stacks.h"
#include "tests/support/temp_folder.h"

namespace lockstep::worker {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

int my_rank() { return std::atoi(std::getenv("LOCKSTEP_RANK")); }

std::string log_of(const std::string& folder, int rank) {
  return text_of(base::str(folder, "/rank_000", rank, ".log"));
}

std::shared_ptr<net::Endpoint> join_as_rank() {
  const auto region = net::Region::attach(std::atoi(std::getenv("LOCKSTEP_REGION_FD")));
  tell_in_dumps(region, {my_rank()});
  return net::Endpoint::join(region, my_rank(), /*direct_memory=*/false);
}

}  // namespace

/// Visible by name in a stack.
[[gnu::noinline]] void compute_until(const std::atomic<bool>& done) {
  while (!done) {
    volatile double x = 1;
    for (int i = 0; i < 100'000; ++i) x = x * 1.0000001;
  }
}

void wait_until(const std::function<bool()>& done) {
  while (!done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

namespace {

/// args: the log folder. Rank 1 computes, asks for a dump once the others wait for it, and joins
/// them when all three have written theirs.
int hang_and_compute(const std::string& folder) {
  dump_on_request();
  const auto endpoint = join_as_rank();
  endpoint->set_status(3, "backward", "bucket 5");
  if (my_rank() == 1) {
    const net::Region& region = endpoint->region();
    std::atomic<bool> done{false};
    std::thread computing([&] { compute_until(done); });
    wait_until(
        [&] { return !region.pending_calls(0).empty() && !region.pending_calls(2).empty(); });
    kill(getppid(), SIGUSR2);
    wait_until([&] {
      for (int rank = 0; rank < 3; ++rank) {
        if (log_of(folder, rank).find("thread ") == std::string::npos) return false;
      }
      return true;
    });
    done = true;
    computing.join();
  }
  float sum = 1;
  endpoint->world()->all_reduce(&sum, 1, net::DType::f32);
  endpoint->finish();
  return sum == 3 ? 0 : 1;
}

/// Asked again and again, from many sides, while threads come and go.
int be_pestered(const std::string&) {
  dump_on_request();
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(700);
  std::thread asking([&] {
    while (std::chrono::steady_clock::now() < until) kill(getpid(), SIGUSR2);
  });
  int64_t sum = 0;
  while (std::chrono::steady_clock::now() < until) {
    std::thread worker([&] {
      std::vector<int64_t> memory(1000, 1);  // allocating is what a handler could disturb
      for (const int64_t one : memory) sum += one;
    });
    worker.join();
  }
  asking.join();
  return sum % 1000 == 0 ? 0 : 1;
}

/// A thread that blocks all signals does not hold the dump up.
int have_a_deaf_thread(const std::string&) {
  dump_on_request();
  std::atomic<bool> over{false};
  std::atomic<bool> deaf{false};
  std::thread thread([&] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    deaf = true;
    while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  while (!deaf) std::this_thread::yield();
  std::fputs(stacks_of_all_threads(SIGUSR2).c_str(), stderr);
  over = true;
  thread.join();
  return 0;
}

/// Asks itself for what it is then told.
int take_requests(const std::string&) {
  const Requests& requests = catch_requests();
  const bool nothing = !requests.stop && requests.saves == 0;
  raise(SIGUSR1);
  raise(SIGUSR1);
  const bool saves = !requests.stop && requests.saves == 2;
  raise(SIGTERM);
  return nothing && saves && requests.stop ? 0 : 1;
}

launch::JobResult play(const char* part, int ranks, const std::string& folder) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  return launch::run_job({.command = {self, "--part", part, folder},
                          .ranks = ranks,
                          .timeout_s = 30,
                          .log_folder = folder});
}

TEST(RankSignals, ADumpTellsStacksAndWaitsAndTheJobGoesOn) {
  const ::lockstep::testing::TempFolder folder;
  const auto result = play("hang_and_compute", 3, folder.path());
  ASSERT_EQ(result.exit_code, 0) << result.error;
  for (const int rank : {0, 2}) {
    const std::string log = log_of(folder.path(), rank);
    EXPECT_THAT(log, HasSubstr(base::str("[rank ", rank, " of 3] SIGUSR2: in backward (bucket 5) ",
                                         "of step 3.\n  waits in all_reduce of 1 float32 (sum) on ",
                                         "\"world\" #1, for ")));
    EXPECT_THAT(log, HasSubstr(" s, for rank 1\n"));
    EXPECT_THAT(log, HasSubstr("lockstep::net::Group::all_reduce("));
  }
  const std::string computing = log_of(folder.path(), 1);
  EXPECT_THAT(computing, HasSubstr("it waits for no peer.\n  thread "));
  EXPECT_THAT(computing, HasSubstr("lockstep::worker::compute_until("));
  EXPECT_THAT(computing, Not(HasSubstr("no answer")));
  EXPECT_THAT(text_of(folder.path() + "/last_operations.txt"),
              ContainsRegex("rank 2 at step 3, in backward \\(bucket 5\\):\n"
                            "  all_reduce of 1 float32 \\(sum\\) on \"world\" #1\n"
                            "  waits in all_reduce of 1 float32"));
}

TEST(RankSignals, ManyRequestsDisturbNothing) {
  const ::lockstep::testing::TempFolder folder;
  const auto result = play("be_pestered", 1, folder.path());
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(log_of(folder.path(), 0), HasSubstr("SIGUSR2: not among its ranks yet.\n  thread "));
}

TEST(RankSignals, AThreadThatDoesNotAnswerIsNamed) {
  const ::lockstep::testing::TempFolder folder;
  const auto result = play("have_a_deaf_thread", 1, folder.path());
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(log_of(folder.path(), 0), ContainsRegex("thread [0-9]+ \\(.*\\), .*: no answer\n"));
}

TEST(RankSignals, RequestsAreKept) {
  const ::lockstep::testing::TempFolder folder;
  EXPECT_EQ(play("take_requests", 1, folder.path()).exit_code, 0);
}

}  // namespace

int play_part(const std::string& part, const std::string& folder) {
  if (part == "hang_and_compute") return hang_and_compute(folder);
  if (part == "be_pestered") return be_pestered(folder);
  if (part == "have_a_deaf_thread") return have_a_deaf_thread(folder);
  return take_requests(folder);
}

}  // namespace lockstep::worker

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--part") {
    return lockstep::worker::play_part(argv[2], argv[3]);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
