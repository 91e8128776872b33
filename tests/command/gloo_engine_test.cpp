// Engine gloo: the same bits over its messages, whoever started the ranks, and the end of a job
// that loses one.

#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>

#include "tests/command/command.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kNano = {"--preset",    "nano",  "--set",
                                        "run.steps=3", "--set", "data.eval_batches=1"};
const std::vector<std::string> kOverGloo = {"--set", "comm.engine=gloo"};

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class GlooJob : public ::testing::Test {
 protected:
  void SetUp() override {
#if !__has_include(<gloo/context.h>)
    GTEST_SKIP() << "built without Gloo: is libgloo-dev installed?";
#endif
  }

  TempFolder runs_;
};

void expect_planned_bytes(const nlohmann::json& summary, size_t ranks) {
  EXPECT_EQ(summary["ranks"].size(), ranks);
  for (const auto& rank : summary["ranks"]) {
    EXPECT_EQ(rank["dp_bytes"], rank["dp_planned_bytes"]) << rank["rank"];
    EXPECT_GT(rank["dp_bytes"].get<int64_t>(), 0);
  }
}

TEST_F(GlooJob, HasTheBitsOfOneProcessAndCountsWhatItsPlanSays) {
  const auto over_memory = train(runs_, kNano);
  const auto alone = train(runs_, kNano + kOverGloo);
  EXPECT_EQ(alone["param_digest"], over_memory["param_digest"]);
  for (const int ranks : {2, 3}) {
    const TempFolder scratch;
    const CommandResult result =
        lockstep(std::vector<std::string>{"train", "-n", std::to_string(ranks), "--json", "--set",
                                          "run.dir=" + runs_.path()} +
                     kNano + kOverGloo,
                 {"TMPDIR=" + scratch.path()});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_NE(result.err.find("ranks over gloo"), std::string::npos) << result.err;
    EXPECT_TRUE(fs::is_empty(scratch.path())) << "something was left behind";
    const auto shared = nlohmann::json::parse(result.out);
    EXPECT_EQ(shared["param_digest"], over_memory["param_digest"]) << ranks;
    EXPECT_EQ(shared["grad_norm"], over_memory["grad_norm"]) << ranks;
    expect_planned_bytes(shared, static_cast<size_t>(ranks));
  }
}

TEST_F(GlooJob, TakesRanksThatMpirunStarted) {
  const std::string mpirun = "/usr/bin/mpirun.openmpi";
  if (!fs::exists(mpirun)) GTEST_SKIP() << "there is no " << mpirun;
  const TempFolder scratch;
  const CommandResult result =
      Command(std::vector<std::string>{mpirun, "--oversubscribe", "-n", "2", beside("lockstep"),
                                       "train", "--json", "--set", "run.dir=" + runs_.path()} +
                  kNano + kOverGloo,
              {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
               "TMPDIR=" + scratch.path()})
          .wait();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  expect_planned_bytes(nlohmann::json::parse(result.out), 2);
}

TEST_F(GlooJob, AKilledRankEndsItNamingTheRank) {
  Command job(
      std::vector<std::string>{"lockstep", "train", "-n", "3", "--set", "run.dir=" + runs_.path()} +
      tiny_nano() + std::vector<std::string>{"--set", "run.steps=100000"} + kOverGloo);
  ASSERT_TRUE(
      eventually([&] { return job.errors_so_far().find("matrix products") != std::string::npos; }));
  for (const pid_t child : children_of(job.pid())) {
    if (environment_of(child, "LOCKSTEP_RANK") == "1") ::kill(child, SIGKILL);
  }
  const auto killed = std::chrono::steady_clock::now();
  const CommandResult result = job.wait();
  EXPECT_LT(std::chrono::steady_clock::now() - killed, std::chrono::seconds(5));
  EXPECT_EQ(result.exit_code, 4) << result.err;
  EXPECT_NE(result.err.find("[rank 1 of 3]"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace lockstep::testing
