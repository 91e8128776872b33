// What takes minutes: `make test-long`.

#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/command/interrupted.h"

namespace lockstep::testing {
namespace {

using namespace std::chrono_literals;

/// The demo. An eager PyTorch run of the same model, data and settings ends at 1.83 nats per byte
/// (bench/peers).
TEST(Long, NanoLearnsOnTwoRanks) {
  const TempFolder runs;
  const nlohmann::json summary = train(runs, {"--preset", "nano", "-n", "2"});
  EXPECT_LE(summary["val_loss"].get<double>(), 1.90);
}

/// A program written for torchrun, with PyTorch's own collectives over TCP. Loading PyTorch takes
/// most of the time.
TEST(Long, ATorchDistributedProgramRunsUnderTheLauncher) {
  const std::string python = "/usr/bin/python3";
  if (Command({"/bin/sh", "-c",
               python + " -c 'import torch.distributed as d; "
                        "assert d.is_available()' 2>&1"})
          .wait()
          .exit_code != 0) {
    GTEST_SKIP() << "no PyTorch for Python: apt-get install python3-torch";
  }
  const TempFolder folder;
  std::ofstream(folder.file("train.py")) << "import torch, torch.distributed as dist\n"
                                            "dist.init_process_group('gloo')\n"
                                            "x = torch.full([3], float(dist.get_rank() + 1))\n"
                                            "dist.all_reduce(x)\n"
                                            "print('sum', x.tolist(), flush=True)\n";
  const CommandResult result = lockstep({"run", "-n", "3", "--", python, folder.file("train.py")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* rank : {"0", "1", "2"}) {
    EXPECT_NE(result.out.find(std::string("[rank ") + rank + "] sum [6.0, 6.0, 6.0]\n"),
              std::string::npos)
        << result.out;
  }
}

/// Kills a rank at twenty moments spread over start, first steps and later ones.
TEST(Long, AKillAtAnyMomentEndsTheJobInTime) {
  for (int trial = 0; trial < 20; ++trial) {
    const TempFolder runs;
    Command job({"lockstep", "train", "--preset", "nano", "-n", "3", "--set", "run.steps=100000",
                 "--set", "run.dir=" + runs.path()});
    const auto start = std::chrono::steady_clock::now();
    std::vector<pid_t> ranks;
    while (ranks.size() < 3 && std::chrono::steady_clock::now() - start < 30s) {
      ranks = children_of(job.pid());
    }
    ASSERT_EQ(ranks.size(), 3u);
    std::this_thread::sleep_for(150ms * trial);
    ::kill(ranks[static_cast<size_t>(trial) % 3], SIGKILL);
    const auto killed = std::chrono::steady_clock::now();
    const CommandResult result = job.wait();
    EXPECT_LT(std::chrono::steady_clock::now() - killed, 5s) << "trial " << trial;
    EXPECT_EQ(result.exit_code, 4) << "trial " << trial << "\n" << result.err;
    for (const pid_t rank : ranks) EXPECT_NE(::kill(rank, 0), 0) << "trial " << trial;
  }
}

/// Ends fifty runs anywhere, and goes on with each on another layout.
TEST(Long, ARunEndsAsTheUnbrokenOneWhereverItWasInterrupted) {
  const Unbroken whole = unbroken_run();
  for (int trial = 0; trial < 50 && !HasFailure(); ++trial) {
    interrupt_and_resume(whole, trial, 7 + static_cast<uint64_t>(trial));
  }
}

}  // namespace
}  // namespace lockstep::testing
