// Two hosts of this machine: network namespaces joined by a cable (bench/two_hosts.sh). It takes
// root and iproute2; skipped where they are not.

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/command/command.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;

class SeveralHosts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(beside("lockstep-openmpi.so"))) {
      GTEST_SKIP() << "lockstep-openmpi.so was not built: is libopenmpi-dev installed?";
    }
    const CommandResult tried = Command(words(1, {"/bin/true"})).wait();
    if (tried.exit_code == 77) GTEST_SKIP() << tried.err;
    ASSERT_EQ(tried.exit_code, 0) << tried.err;
  }

  std::vector<std::string> words(int each, const std::vector<std::string>& program) const {
    std::vector<std::string> words = {fs::absolute("bench/two_hosts.sh"), "--counters",
                                      folder_.path() + "/counters.json", std::to_string(each)};
    words.insert(words.end(), program.begin(), program.end());
    return words;
  }

  CommandResult on_two_hosts(int each, const std::vector<std::string>& program) const {
    return Command(words(each, program)).wait();
  }

  nlohmann::json counters() const {
    std::ifstream file(folder_.path() + "/counters.json");
    return nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  }

  std::vector<std::string> training(const std::vector<std::string>& more) const {
    std::vector<std::string> program = {beside("lockstep"), "train", "--preset", "nano", "--set",
                                        "comm.engine=mpi"};
    program.insert(program.end(), more.begin(), more.end());
    program.insert(program.end(), {"--set", "run.dir=" + folder_.path(), "--json"});
    return program;
  }

  TempFolder folder_;
};

/// A foreign witness: what crossed the cable is what the ledgers say, and a little more for headers
/// and for starting.
TEST_F(SeveralHosts, TheCableCountsWhatTheLedgerCounts) {
  constexpr int kIterations = 4;
  for (const char* algorithm : {"direct", "hierarchical"}) {
    const CommandResult result =
        on_two_hosts(2, {beside("lockstep"), "bench", "all_reduce", "-n", "4", "--engine", "mpi",
                         "--algorithm", algorithm, "-b", "4M", "-e", "4M", "--iters",
                         std::to_string(kIterations), "-w", "0", "--json"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const auto all = nlohmann::json::parse(result.out);
    EXPECT_EQ(all["hosts"], 2);
    const auto& row = all["results"][0];
    EXPECT_EQ(row["wrong"], 0);
    EXPECT_EQ(row["counted_bytes"], row["expected_bytes"]);
    EXPECT_EQ(row["across_bytes"], row["expected_across_bytes"]);
    // In place and not; half of the bytes go each way.
    const double one_way = row["across_bytes"].get<double>() * kIterations * 2 / 2;
    for (const char* host : {"a", "b"}) {
      const double sent = counters()[host]["sent"].get<double>();
      EXPECT_GE(sent, one_way) << algorithm;
      EXPECT_LE(sent, 1.02 * one_way + 1e6) << algorithm;
    }
  }
}

TEST_F(SeveralHosts, EveryAlgorithmIsExact) {
  for (const auto& [operation, algorithms] : every_algorithm()) {
    const CommandResult result = on_two_hosts(
        2, {beside("lockstep"), "bench", operation, "-n", "4", "--engine", "mpi", "--algorithm",
            algorithms, "-b", "48", "-e", "300000", "-f", "80", "--iters", "2", "--json"});
    ASSERT_EQ(result.exit_code, 0) << operation << result.err;
    for (const auto& row : nlohmann::json::parse(result.out)["results"]) {
      EXPECT_EQ(row["wrong"], 0) << row;
      EXPECT_EQ(row["counted_bytes"], row["expected_bytes"]) << row;
      EXPECT_EQ(row["across_bytes"], row["expected_across_bytes"]) << row;
    }
  }
}

TEST_F(SeveralHosts, TrainingHasTheBitsOfOneProcess) {
  const std::vector<std::string> steps = {"--set", "run.steps=5"};
  const auto alone = train(folder_, {"--preset", "nano", "--set", "run.steps=5"});
  const CommandResult result = on_two_hosts(2, training(steps));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto shared = nlohmann::json::parse(result.out);
  EXPECT_EQ(shared["param_digest"], alone["param_digest"]);
  EXPECT_EQ(shared["grad_norm"], alone["grad_norm"]);
  ASSERT_EQ(shared["ranks"].size(), 4U);
  for (const auto& rank : shared["ranks"]) {
    EXPECT_EQ(rank["samples"], shared["ranks"][0]["samples"]);
    EXPECT_EQ(rank["dp_bytes"], rank["dp_planned_bytes"]) << rank["rank"];
    EXPECT_GT(rank["dp_bytes"].get<int64_t>(), 0);
  }
}

/// The program of every process below `pid`, as "lockstep-worker".
std::vector<pid_t> workers_below(pid_t pid) {
  std::vector<pid_t> workers;
  for (const pid_t child : children_of(pid)) {
    std::error_code error;
    if (fs::read_symlink("/proc/" + std::to_string(child) + "/exe", error).filename() ==
        "lockstep-worker") {
      workers.push_back(child);
    }
    for (const pid_t below : workers_below(child)) workers.push_back(below);
  }
  return workers;
}

TEST_F(SeveralHosts, AKilledRankEndsAllHostsAndLeavesNothing) {
  Command job(words(2, training({"--set", "run.steps=100000", "--set", "comm.timeout_s=20"})));
  ASSERT_TRUE(eventually([&] { return job.errors_so_far().find("step 10") != std::string::npos; }))
      << job.errors_so_far();
  std::vector<pid_t> workers = workers_below(job.pid());
  ASSERT_EQ(workers.size(), 4U);
  pid_t killed = 0;
  for (const pid_t worker : workers) {
    if (environment_of(worker, "LOCKSTEP_RANK") == "3") killed = worker;
  }
  ASSERT_NE(killed, 0);
  kill(killed, SIGKILL);
  const CommandResult result = job.wait();
  EXPECT_EQ(result.exit_code, 4) << result.err;
  EXPECT_NE(result.err.find("rank 3 of 4"), std::string::npos) << result.err;
  for (const pid_t worker : workers) {
    EXPECT_TRUE(eventually([&] { return kill(worker, 0) != 0; })) << worker;
  }
  EXPECT_FALSE(fs::exists("/run/netns/ls" + std::to_string(job.pid()) + "-a"));
}

TEST_F(SeveralHosts, EngineShmIsRefused) {
  std::vector<std::string> program = training({"--set", "run.steps=5"});
  for (std::string& word : program) {
    if (word == "comm.engine=mpi") word = "comm.engine=shm";
  }
  const CommandResult result = on_two_hosts(1, program);
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_NE(result.err.find("engine shm spans one host"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace lockstep::testing
