// Engine mpi: the same bits over both MPIs, started by `-n` or by mpirun itself.

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>

#include "tests/command/command.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kNano = {"train", "--preset", "nano", "--set", "run.steps=5"};

/// Open MPI refuses to run as root unless it is told twice; and two mpiruns that make the folder
/// of their user at once get into each other's way, so each has a folder of its own.
std::vector<std::string> mpi_environment(const TempFolder& folder) {
  return {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
          "TMPDIR=" + folder.path()};
}

struct MpiCase {
  const char* name;
  const char* mpirun;
  const char* plugin;
};

class MpiEngine : public ::testing::TestWithParam<MpiCase> {
 protected:
  void SetUp() override {
    const std::string mpirun = std::string("/usr/bin/") + GetParam().mpirun;
    if (!fs::exists(mpirun)) GTEST_SKIP() << "there is no " << mpirun;
    if (!fs::exists(beside(GetParam().plugin))) {
      GTEST_SKIP() << GetParam().plugin << " was not built: are its -dev packages installed?";
    }
  }

  /// A job started by this MPI's mpirun.
  nlohmann::json train_by_mpirun(int ranks, const std::vector<std::string>& more) {
    std::vector<std::string> words = {std::string("/usr/bin/") + GetParam().mpirun};
    if (std::string(GetParam().name) == "OpenMpi") words.emplace_back("--oversubscribe");
    words.insert(words.end(), {"-n", std::to_string(ranks), beside("lockstep")});
    words.insert(words.end(), kNano.begin(), kNano.end());
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {"--set", "run.dir=" + runs_.path(), "--json"});
    const CommandResult result = Command(words, mpi_environment(scratch_)).wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out, nullptr, /*allow_exceptions=*/false);
  }

  TempFolder runs_;
  TempFolder scratch_;
};

INSTANTIATE_TEST_SUITE_P(Mpis, MpiEngine,
                         ::testing::Values(MpiCase{"OpenMpi", "mpirun.openmpi",
                                                   "lockstep-openmpi.so"},
                                           MpiCase{"Mpich", "mpirun.mpich", "lockstep-mpich.so"}),
                         [](const auto& info) { return info.param.name; });

TEST_P(MpiEngine, HasTheBitsOfOneProcessAndCountsWhatItsPlanSays) {
  const auto alone = train(runs_, {"--preset", "nano", "--set", "run.steps=5"});
  for (const int ranks : {2, 3}) {
    const auto shared = train_by_mpirun(ranks, {"--set", "comm.engine=mpi"});
    EXPECT_EQ(shared["param_digest"], alone["param_digest"]) << ranks;
    EXPECT_EQ(shared["grad_norm"], alone["grad_norm"]) << ranks;
    for (const auto& rank : shared["ranks"]) {
      EXPECT_EQ(rank["dp_bytes"], rank["dp_planned_bytes"]) << rank["rank"];
      EXPECT_GT(rank["dp_bytes"].get<int64_t>(), 0);
    }
  }
}

/// Every algorithm over this MPI's messages: exact, and as many bytes as the plans say.
TEST_P(MpiEngine, CarriesEveryAlgorithmOut) {
  for (const auto& [operation, algorithms] : every_algorithm()) {
    for (const int ranks : {3, 4}) {
      std::vector<std::string> words = {std::string("/usr/bin/") + GetParam().mpirun};
      if (std::string(GetParam().name) == "OpenMpi") words.emplace_back("--oversubscribe");
      const std::string count = std::to_string(ranks);
      words.insert(words.end(), {"-n",          count,      beside("lockstep"),
                                 "bench-rank",  operation,  "-n",
                                 count,         "--engine", "mpi",
                                 "--algorithm", algorithms, "-b",
                                 "48",          "-e",       "1M",
                                 "-f",          "64",       "--iters",
                                 "2",           "--json"});
      const CommandResult result = Command(words, mpi_environment(scratch_)).wait();
      ASSERT_EQ(result.exit_code, 0) << operation << result.err;
      for (const auto& row : nlohmann::json::parse(result.out)["results"]) {
        EXPECT_EQ(row["wrong"], 0) << row;
        EXPECT_EQ(row["counted_bytes"], row["expected_bytes"]) << row;
      }
    }
  }
}

TEST_P(MpiEngine, StartsItsMpirunByItself) {
  if (std::string(GetParam().name) == "Mpich") {
    GTEST_SKIP() << "where both MPIs are, Open MPI is taken";
  }
  const TempFolder folder;
  const CommandResult result =
      lockstep({"train", "--preset", "nano", "-n", "2", "--set", "run.steps=3", "--set",
                "comm.engine=mpi", "--set", "run.dir=" + runs_.path(), "--json"},
               mpi_environment(folder));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("2 ranks over mpi"), std::string::npos) << result.err;
  EXPECT_EQ(nlohmann::json::parse(result.out)["ranks"].size(), 2u);
}

/// Open MPI's mpirun: nothing of it is to be asked for in a machine that has none.
bool open_mpi_is_here() {
  return fs::exists("/usr/bin/mpirun.openmpi") && fs::exists(beside("lockstep-openmpi.so"));
}

const std::vector<std::string> kLongBenchmark = {"lockstep", "bench",   "all_reduce", "-n", "2",
                                                 "--engine", "mpi",     "-b",         "1K", "-e",
                                                 "1K",       "--iters", "1000000"};

TEST(MpiEngineAlone, ABenchmarkEndsAtTheFirstRequestToStop) {
  if (!open_mpi_is_here()) GTEST_SKIP() << "there is no Open MPI";
  const TempFolder folder;
  Command job(kLongBenchmark, mpi_environment(folder));
  ASSERT_TRUE(eventually([&] { return !job.output_so_far().empty(); })) << job.errors_so_far();
  ::kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait().exit_code, 128 + SIGTERM);
}

TEST(MpiEngineAlone, ASecondRequestToStopEndsTrainingAtOnce) {
  if (!open_mpi_is_here()) GTEST_SKIP() << "there is no Open MPI";
  const TempFolder folder;
  const TempFolder runs;
  Command job({"lockstep", "train", "--preset", "nano", "-n", "2", "--set", "comm.engine=mpi",
               "--set", "run.steps=100000", "--set", "run.dir=" + runs.path()},
              mpi_environment(folder));
  ASSERT_TRUE(eventually([&] { return job.errors_so_far().find("step 10/") != std::string::npos; }))
      << job.errors_so_far();
  ::kill(job.pid(), SIGINT);
  ::kill(job.pid(), SIGTERM);  // comes second also where both wait: its number is higher
  EXPECT_EQ(job.wait().exit_code, 128 + SIGTERM);
}

TEST(MpiEngineAlone, AKilledMpirunIsSaid) {
  if (!open_mpi_is_here()) GTEST_SKIP() << "there is no Open MPI";
  const TempFolder folder;
  Command job(kLongBenchmark, mpi_environment(folder));
  ASSERT_TRUE(eventually([&] { return !job.output_so_far().empty(); })) << job.errors_so_far();
  const std::vector<pid_t> mpirun = children_of(job.pid());
  ASSERT_EQ(mpirun.size(), 1U);
  const std::vector<pid_t> ranks = children_of(mpirun[0]);
  ::kill(mpirun[0], SIGKILL);
  const CommandResult result = job.wait();
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_NE(result.err.find("mpirun died: killed by signal 9"), std::string::npos) << result.err;
  for (const pid_t rank : ranks) {
    EXPECT_TRUE(eventually([&] { return ::kill(rank, 0) != 0; })) << rank;
  }
}

TEST(MpiEngineAlone, ABenchmarkOfAnotherEngineUnderMpirunIsRefused) {
  const CommandResult result =
      lockstep({"bench", "all_reduce", "-n", "2"}, {"OMPI_COMM_WORLD_SIZE=2"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("Use --engine mpi"), std::string::npos) << result.err;
}

TEST(MpiEngineAlone, WithoutAnMpiTheMessageSaysWhatToInstall) {
  const TempFolder runs;
  const CommandResult result = lockstep({"train", "--preset", "nano", "-n", "2", "--set",
                                         "comm.engine=mpi", "--set", "run.dir=" + runs.path()},
                                        {"PATH=/nowhere"});
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_NE(result.err.find("openmpi-bin"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace lockstep::testing
