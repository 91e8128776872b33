// Ranks that other launchers start. A launcher that is not installed skips its tests; Slurm is
// played by a script that starts processes as srun does, with its variables.

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>

#include "lockstep/launch/free_port.h"
#include "tests/command/command.h"
#include "tests/support/available_memory.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

/// A program of PATH; empty if there is none.
std::string found(const std::string& program) {
  std::istringstream folders(std::getenv("PATH"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (::access((folder + "/" + program).c_str(), X_OK) == 0) return folder + "/" + program;
  }
  return "";
}

const char* const kSrun = R"(
# srun.sh RANKS PROGRAM ARGS...: each rank with the variables of srun. As srun without
# --kill-on-bad-exit does, it leaves the others alone when one fails.
ranks=$1; shift; pids=
export SLURM_JOB_ID=$$ SLURM_STEP_ID=0 SLURM_NTASKS=$ranks SLURM_STEP_NUM_TASKS=$ranks
export SLURM_STEP_TASKS_PER_NODE=$ranks SLURM_STEP_NODELIST=$(hostname) SLURM_NODEID=0
for rank in $(seq 0 $((ranks - 1))); do
  SLURM_PROCID=$rank SLURM_LOCALID=$rank "$@" &
  pids="$pids $!"
done
code=0
for pid in $pids; do wait $pid || code=$?; done
exit $code
)";

// Debian's python3-torch 1.13 reads "0" as no redirection in a way that Python 3.11 has changed.
const char* const kTorchrun = R"(
import torch.distributed.elastic.multiprocessing.api as api
api.Std.from_str = classmethod(lambda cls, text: cls(int(text)))
from torch.distributed.run import main
main()
)";

/// The words that start N ranks of a program.
class Start {
 public:
  explicit Start(std::string launcher) : launcher_(std::move(launcher)) {
    std::ofstream(folder_.file("srun.sh")) << kSrun;
    std::ofstream(folder_.file("torchrun.py")) << kTorchrun;
  }

  /// Why it cannot be: empty if it can.
  std::string missing() const {
    if (launcher_ == "OpenMpi" && found("mpirun.openmpi").empty()) return "no mpirun.openmpi";
    if (launcher_ == "Mpich" && found("mpirun.mpich").empty()) return "no mpirun.mpich";
    if (launcher_ == "Torchrun" && !fs::exists("/usr/lib/python3/dist-packages/torch")) {
      return "no python3-torch";
    }
    return "";
  }

  Arguments words(int ranks, const Arguments& program) const {
    const std::string count = std::to_string(ranks);
    Arguments words;
    if (launcher_ == "OpenMpi") words = {found("mpirun.openmpi"), "--oversubscribe", "-n", count};
    if (launcher_ == "Mpich") words = {found("mpirun.mpich"), "-n", count};
    if (launcher_ == "Slurm") words = {"/bin/bash", folder_.file("srun.sh"), count};
    if (launcher_ == "Torchrun") {
      words = {"/usr/bin/python3", folder_.file("torchrun.py"), "--standalone",
               "--no_python",      "--nproc_per_node",          count};
    }
    words.insert(words.end(), program.begin(), program.end());
    return words;
  }

  std::unique_ptr<Command> start(int ranks, const Arguments& program) {
    // mpirun makes a folder of its user's: two at once, and one finds that it is there already.
    const std::string own = folder_.file(std::to_string(started_++));
    fs::create_directory(own);
    return std::make_unique<Command>(
        words(ranks, program),
        Arguments{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                  "OMPI_MCA_orte_tmpdir_base=" + own, "LOCKSTEP_TIMEOUT_S=20"});
  }

 private:
  std::string launcher_;
  TempFolder folder_;
  int started_ = 0;
};

class Join : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!start_.missing().empty()) GTEST_SKIP() << start_.missing() << " on this machine";
  }
  static std::string rank_program() { return beside("join_rank"); }

  Start start_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Launchers, Join, ::testing::Values("OpenMpi", "Mpich", "Slurm"),
                         [](const auto& info) { return std::string(info.param); });

/// Every line that the ranks of a whole world print, in any order.
void expect_sums(const std::string& out, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    std::ostringstream line;
    line << "rank " << rank << " of " << ranks << ": " << ranks * (ranks + 1) / 2 << "\n";
    EXPECT_NE(out.find(line.str()), std::string::npos) << line.str() << " is not in\n" << out;
  }
}

TEST_P(Join, RanksMeetAndSum) {
  const CommandResult result = start_.start(3, {rank_program(), "sum"})->wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  expect_sums(result.out, 3);
}

/// Engine mpi, if this launcher is an mpirun whose plug-in was built.
class JoinByMpi : public Join {
 protected:
  void SetUp() override {
    Join::SetUp();
    const bool open_mpi = std::string(GetParam()) == "OpenMpi";
    const char* const plugin = open_mpi ? "lockstep-openmpi.so" : "lockstep-mpich.so";
    if (!fs::exists(beside(plugin))) GTEST_SKIP() << plugin << " was not built";
  }
  static Arguments over_mpi(const Arguments& part) {
    Arguments words = {"/usr/bin/env", "LOCKSTEP_ENGINE=mpi", rank_program()};
    words.insert(words.end(), part.begin(), part.end());
    return words;
  }
};

INSTANTIATE_TEST_SUITE_P(Mpis, JoinByMpi, ::testing::Values("OpenMpi", "Mpich"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(JoinByMpi, ThousandsOfMixedCallsAreRightInFlatMemory) {
  const CommandResult result = start_.start(4, over_mpi({"mixed", "10000"}))->wait();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::istringstream lines(result.out);
  int ranks = 0;
  for (std::string line; std::getline(lines, line); ++ranks) {
    const size_t growth = line.find("10000 calls, ");
    ASSERT_NE(growth, std::string::npos) << line;
    EXPECT_LT(std::stoll(line.substr(growth + 13)), 8 << 20) << line;
  }
  EXPECT_EQ(ranks, 4) << result.out;
}

TEST_P(JoinByMpi, LongCOLL_3_CountsBeyond31Bits) {
  if (available_gib() < 10) GTEST_SKIP() << "needs 10 GiB of free memory";
  const CommandResult result = start_.start(2, over_mpi({"large"}))->wait();
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_NE(result.out.find("rank 0 of 2: large\n"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("rank 1 of 2: large\n"), std::string::npos) << result.out;
}

/// `lockstep train -n 2` over mpi is told to stop; the ranks take longer to save than the second
/// that Open MPI leaves those it ends.
TEST(StartedByMpi, ARequestToStopLeavesTheRanksTimeToSave) {
  const bool open_mpi =
      !found("mpirun.openmpi").empty() && fs::exists(beside("lockstep-openmpi.so"));
  const bool mpich = !found("mpirun.mpich").empty() && fs::exists(beside("lockstep-mpich.so"));
  if (!open_mpi && !mpich) GTEST_SKIP() << "no MPI on this machine";
  const TempFolder folder;
  const std::string worker = folder.file("worker.sh");
  const std::string told = folder.file("told");
  std::ofstream(worker) << "#!/bin/sh\n"
                        << "trap 'sleep 1.5; echo saved >> " << told << "; exit 75' TERM\n"
                        << "echo up >> " << told << "\n"
                        << "for i in $(seq 600); do sleep 0.05; done\n";
  fs::permissions(worker, fs::perms::owner_all);
  Command job({"lockstep", "train", "--preset", "nano", "-n", "2", "--set", "comm.engine=mpi",
               "--set", "run.worker=" + worker, "--set", "run.dir=" + folder.path()},
              {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
               "OMPI_MCA_orte_tmpdir_base=" + folder.path()});
  ASSERT_TRUE(eventually([&] { return text_of(told) == "up\nup\n"; }));
  ::kill(job.pid(), SIGTERM);
  const CommandResult result = job.wait();
  EXPECT_EQ(result.exit_code, 75) << result.err;
  EXPECT_EQ(text_of(told), "up\nup\nsaved\nsaved\n");
}

TEST_P(Join, AScriptBetweenLauncherAndRankIsNoHindrance) {
  const CommandResult result =
      start_.start(2, {"/bin/sh", "-c", rank_program() + " sum && " + rank_program() + " sum"})
          ->wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  expect_sums(result.out, 2);
}

TEST_P(Join, BAD_9_JobsAtOnceDoNotMeet) {
  std::vector<std::unique_ptr<Command>> jobs;
  for (int i = 0; i < 4; ++i) jobs.push_back(start_.start(2, {rank_program(), "sum"}));
  for (const auto& job : jobs) {
    const CommandResult result = job->wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    expect_sums(result.out, 2);
  }
}

TEST_P(Join, AFailureIsQuotedByTheOthers) {
  const CommandResult result = start_.start(3, {rank_program(), "fail", "1"})->wait();
  EXPECT_NE(result.exit_code, 0);
  EXPECT_LT(result.seconds, 20);
  EXPECT_NE((result.out + result.err).find("rank 1 failed: loss is nan"), std::string::npos)
      << result.out << result.err;
}

TEST_P(Join, ADeadRankEndsTheOthers) {
  const CommandResult result = start_.start(3, {rank_program(), "die", "1"})->wait();
  EXPECT_NE(result.exit_code, 0);
  EXPECT_LT(result.seconds, 20);
}

// One test, for torchrun takes seconds to start.
TEST(JoinTorchrun, RanksMeetAndAFailureIsQuoted) {
  Start torchrun("Torchrun");
  if (!torchrun.missing().empty()) GTEST_SKIP() << torchrun.missing() << " on this machine";
  const auto good = torchrun.start(3, {beside("join_rank"), "sum"});
  const auto bad = torchrun.start(2, {beside("join_rank"), "fail", "1"});
  const CommandResult sums = good->wait();
  EXPECT_EQ(sums.exit_code, 0) << sums.err;
  expect_sums(sums.out, 3);
  const CommandResult failure = bad->wait();
  EXPECT_NE(failure.exit_code, 0);
  EXPECT_NE((failure.out + failure.err).find("loss is nan"), std::string::npos) << failure.err;
}

Arguments nano(const TempFolder& runs, const Arguments& more = {}) {
  Arguments words = {beside("lockstep"), "train"};
  const Arguments tiny = tiny_nano();
  words.insert(words.end(), tiny.begin(), tiny.end());
  words.insert(words.end(), {"--set", "run.steps=3", "--set", "run.dir=" + runs.path()});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

size_t run_folders(const TempFolder& runs) {
  return static_cast<size_t>(
      std::distance(fs::directory_iterator(runs.path()), fs::directory_iterator()));
}

TEST_P(Join, TrainIsOneJobWithTheBitsOfOurOwnLauncher) {
  const TempFolder runs;
  const CommandResult result = start_.start(2, nano(runs, {"--json"}))->wait();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(run_folders(runs), 1u);
  const auto joined = nlohmann::json::parse(result.out);
  EXPECT_EQ(joined["ranks"].size(), 2u);
  const TempFolder own;
  Arguments words = tiny_nano();
  words.insert(words.end(), {"-n", "2", "--set", "run.steps=3"});
  const auto alone = train(own, words);
  EXPECT_EQ(joined["param_digest"], alone["param_digest"]);
}

TEST_P(Join, ARefusedConfigEndsAllRanksWithItsExitCode) {
  const TempFolder runs;
  const CommandResult result = start_.start(2, nano(runs, {"--set", "model.width=127"}))->wait();
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_NE(result.err.find("width"), std::string::npos) << result.err;
  EXPECT_EQ(run_folders(runs), 0u);
  const CommandResult wrong_n = start_.start(2, nano(runs, {"-n", "3"}))->wait();
  EXPECT_EQ(wrong_n.exit_code, 2) << wrong_n.err;
  EXPECT_NE(wrong_n.err.find("has started 2 ranks"), std::string::npos) << wrong_n.err;
}

// srun leaves the others alone: they notice by themselves.
TEST(JoinSlurm, SurvivorsNameTheDeadRankAndExitWith4) {
  Start srun("Slurm");
  const CommandResult result = srun.start(3, {beside("join_rank"), "die", "0"})->wait();
  EXPECT_EQ(result.exit_code, 4) << result.err;
  EXPECT_LT(result.seconds, 10);
  for (const char* survivor : {"[rank 1 of 3]", "[rank 2 of 3]"}) {
    EXPECT_NE(result.err.find(survivor), std::string::npos) << result.err;
  }
  EXPECT_NE(result.err.find("rank 0 is gone"), std::string::npos) << result.err;
}

TEST(JoinSlurm, ARankThatNeverComesIsNamed) {
  // Rank 1 is another program.
  const std::string program = "test $SLURM_PROCID = 1 || exec " + beside("join_rank") + " sum";
  const Start srun("Slurm");
  Command job(srun.words(3, {"/bin/sh", "-c", program}), {"LOCKSTEP_TIMEOUT_S=0.5"});
  const CommandResult result = job.wait();
  EXPECT_EQ(result.exit_code, 5) << result.err;
  EXPECT_NE(result.err.find("local rank 1 has not come; local ranks 0 and 2 have"),
            std::string::npos)
      << result.err;
}

// ---- several nodes: two launchers of ours on this host

/// A port that nobody listens on now.
int port() {
  const int number = launch::free_port();
  EXPECT_GT(number, 0);
  return number;
}

class TwoNodes : public ::testing::Test {
 protected:
  /// The launchers of both nodes, started in this order. `words` come before `--`.
  std::vector<CommandResult> run(const Arguments& program, const Arguments& words = {},
                                 const std::vector<int>& order = {0, 1}, int ranks_of_1 = 2) {
    const std::string meeting = "127.0.0.1:" + std::to_string(port());
    std::vector<std::unique_ptr<Command>> launchers(2);
    for (const int node : order) {
      Arguments all = {
          "lockstep",     "run",   "-n",          std::to_string(node == 0 ? 2 : ranks_of_1),
          "--nnodes",     "2",     "--node-rank", std::to_string(node),
          "--rendezvous", meeting, "--timeout-s", "20"};
      all.insert(all.end(), words.begin(), words.end());
      all.push_back("--");
      all.insert(all.end(), program.begin(), program.end());
      launchers[static_cast<size_t>(node)] = std::make_unique<Command>(all);
    }
    std::vector<CommandResult> results;
    for (const auto& launcher : launchers) results.push_back(launcher->wait());
    return results;
  }
};

TEST_F(TwoNodes, RanksOfOneHostShareTheirRegion) {
  for (const std::vector<int>& order : {std::vector<int>{0, 1}, {1, 0}}) {
    const auto nodes = run({beside("join_rank"), "sum"}, {}, order, /*ranks_of_1=*/1);
    EXPECT_EQ(nodes[0].exit_code + nodes[1].exit_code, 0) << nodes[0].err << nodes[1].err;
    EXPECT_NE(nodes[0].out.find("rank 0 of 3: 6"), std::string::npos) << nodes[0].out;
    EXPECT_NE(nodes[0].out.find("rank 1 of 3: 6"), std::string::npos) << nodes[0].out;
    EXPECT_NE(nodes[1].out.find("rank 2 of 3: 6"), std::string::npos) << nodes[1].out;
  }
}

TEST_F(TwoNodes, AFailureIsReportedOnEachNodeWithItsCode) {
  for (const char* rank : {"0", "3"}) {
    const auto nodes = run({beside("join_rank"), "fail", rank});
    for (const CommandResult& node : nodes) {
      EXPECT_EQ(node.exit_code, 1) << node.err;
      EXPECT_LT(node.seconds, 15);
      EXPECT_NE(node.err.find(std::string("[rank ") + rank + " of 4] loss is nan"),
                std::string::npos)
          << node.err;
    }
  }
}

TEST_F(TwoNodes, ADeadRankIsNamedOnEachNode) {
  const auto nodes = run({beside("join_rank"), "die", "2"});
  for (const CommandResult& node : nodes) {
    EXPECT_EQ(node.exit_code, 4) << node.err;
    EXPECT_NE(node.err.find("[rank 2 of 4] died: killed by signal 9"), std::string::npos)
        << node.err;
  }
}

// A program that knows nothing of Lockstep: ended by the launchers, started again on both nodes.
// The rank that fails waits until all have written.
TEST_F(TwoNodes, EL_5_RestartsKeepEveryRanksPlace) {
  const TempFolder folder;
  const std::string program =
      "echo $TORCHELASTIC_RESTART_COUNT $GROUP_RANK $LOCAL_RANK $RANK $WORLD_SIZE $MASTER_ADDR "
      ">> " +
      folder.path() +
      "/rank$RANK; "
      "test $TORCHELASTIC_RESTART_COUNT = 3 && exit 0; "
      "test $RANK = $TORCHELASTIC_RESTART_COUNT || exec sleep 60; "
      "while test $(cat " +
      folder.path() +
      "/rank* | grep -c \"^$TORCHELASTIC_RESTART_COUNT \") -lt 4; do sleep 0.02; done; exit 7";
  const auto nodes = run({"/bin/sh", "-c", program}, {"--max-restarts", "3"});
  EXPECT_EQ(nodes[0].exit_code, 0) << nodes[0].err;
  EXPECT_EQ(nodes[1].exit_code, 0) << nodes[1].err;
  for (int rank = 0; rank < 4; ++rank) {
    std::ostringstream expected;
    for (int restart = 0; restart <= 3; ++restart) {
      expected << restart << " " << rank / 2 << " " << rank % 2 << " " << rank << " 4 127.0.0.1\n";
    }
    EXPECT_EQ(text_of(folder.path() + "/rank" + std::to_string(rank)), expected.str());
  }
}

TEST_F(TwoNodes, AFailureOfAForeignProgramEndsBoth) {
  const auto nodes = run({"/bin/sh", "-c", "test $RANK = 3 && exit 7; sleep 60"});
  for (const CommandResult& node : nodes) {
    EXPECT_EQ(node.exit_code, 7) << node.err;
    EXPECT_LT(node.seconds, 15);
    EXPECT_NE(node.err.find("[rank 3 of 4] exited with code 7"), std::string::npos) << node.err;
  }
}

// Variables set by hand, as PyTorch's env:// takes them.
TEST(JoinByHand, FourVariablesAreEnough) {
  const std::string port = std::to_string(20000 + ::getpid() % 20000);
  const auto rank = [&](const char* number) {
    return std::make_unique<Command>(
        Arguments{beside("join_rank"), "sum"},
        Arguments{std::string("RANK=") + number, "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                  "MASTER_PORT=" + port, "LOCKSTEP_TIMEOUT_S=20"});
  };
  const auto one = rank("1");
  const auto zero = rank("0");
  const CommandResult of_one = one->wait();
  const CommandResult of_zero = zero->wait();
  EXPECT_EQ(of_one.exit_code + of_zero.exit_code, 0) << of_one.err << of_zero.err;
  expect_sums(of_one.out + of_zero.out, 2);
}

TEST(JoinByHand, MalformedVariablesAreRefusedByName) {
  const CommandResult result =
      Command({beside("join_rank"), "sum"}, {"RANK=2", "WORLD_SIZE=2"}).wait();
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.err.find("RANK=\"2\" is not below WORLD_SIZE=\"2\""), std::string::npos)
      << result.err;
}

TEST(JoinByHand, RanksOnSeveralHostsAreRefusedWithTheReason) {
  const CommandResult result =
      Command({beside("join_rank"), "sum"},
              {"RANK=2", "WORLD_SIZE=4", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=1"})
          .wait();
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.err.find("engine shm spans one host"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace lockstep::testing
