// The main job on real text: the same bits on any number of ranks, and the work really split.

#include <gtest/gtest.h>

#include <fstream>

#include "tests/command/command.h"

namespace lockstep::testing {
namespace {

using Arguments = std::vector<std::string>;

Arguments nano(int ranks, const Arguments& more = {}) {
  Arguments all = {"--preset", "nano", "-n", std::to_string(ranks), "--set", "run.steps=20"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// What must not depend on the layout, in figures that read back exactly.
std::string bits_of(const nlohmann::json& summary) {
  return summary["param_digest"].get<std::string>() + " " + summary["grad_norm"].dump() + " " +
         summary["loss"].dump() + " " + summary["val_loss"].dump();
}

struct Setting {
  const char* name;
  Arguments arguments;
};

class SameBits : public ::testing::TestWithParam<Setting> {};

TEST_P(SameBits, OnOneToFourRanks) {
  const TempFolder runs;
  const std::string alone = bits_of(train(runs, nano(1, GetParam().arguments)));
  for (const int ranks : {2, 3, 4}) {
    EXPECT_EQ(bits_of(train(runs, nano(ranks, GetParam().arguments))), alone) << ranks << " ranks";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Nano, SameBits,
    ::testing::Values(Setting{"Plain", {}}, Setting{"Dropout", {"--set", "model.dropout=0.1"}},
                      Setting{"Accumulation",
                              {"--set", "data.global_batch=32", "--set", "numerics.grains=4"}},
                      Setting{"OtherSeed", {"--set", "run.seed=7"}}),
    [](const auto& info) { return info.param.name; });

TEST(SameBitsAcross, EnginesBucketsAndOverlap) {
  const TempFolder runs;
  const std::string alone = bits_of(train(runs, nano(1)));
  EXPECT_EQ(bits_of(train(runs, nano(3, {"--set", "comm.engine=threads"}))), alone);
  EXPECT_EQ(bits_of(train(runs, nano(2, {"--set", "comm.bucket_mb=0.1"}))), alone);
  EXPECT_EQ(bits_of(train(runs, nano(4, {"--set", "comm.overlap=false"}))), alone);
  EXPECT_NE(bits_of(train(runs, nano(1, {"--set", "model.dropout=0.1"}))), alone);
}

TEST(SameBitsAcross, AlgorithmsWhosePlansMoveWhatTheRanksCount) {
  const TempFolder runs;
  const std::string alone = bits_of(train(runs, nano(1, {"--set", "run.steps=5"})));
  for (const char* algorithm : {"halving", "binomial"}) {
    for (const int ranks : {3, 4}) {
      const nlohmann::json shared =
          train(runs, nano(ranks, {"--set", "run.steps=5", "--set",
                                   std::string("comm.algorithm=") + algorithm}));
      EXPECT_EQ(bits_of(shared), alone) << algorithm << " on " << ranks << " ranks";
      for (const nlohmann::json& rank : shared["ranks"]) {
        EXPECT_EQ(rank["dp_bytes"], rank["dp_planned_bytes"]) << algorithm << " " << rank["rank"];
        EXPECT_GT(rank["dp_bytes"].get<int64_t>(), 0);
      }
    }
  }
}

/// A table that has another algorithm for the loss, for the first bucket and for what is longer. It
/// travels in the run's config.
TEST(SameBitsAcross, AlgorithmsOfATableBySize) {
  const TempFolder runs;
  const std::string table = runs.file("t.toml");
  std::ofstream(table) << "schema = 1\n[[tables]]\nengine = \"shm\"\nranks = 4\nhosts = 1\n"
                          "[[tables.all_reduce]]\nalgorithm = \"binomial\"\nup_to_bytes = 64\n"
                          "[[tables.all_reduce]]\nalgorithm = \"halving\"\nup_to_bytes = 32768\n"
                          "[[tables.all_reduce]]\nalgorithm = \"direct\"\n";
  const auto run = [&](const char* ranks, const std::string& table_or_none) {
    Arguments all = tiny_nano();
    for (const std::string& setting :
         {std::string("run.steps=3"), std::string("comm.first_bucket_mb=0.01"),
          "comm.table=" + table_or_none}) {
      all.insert(all.end(), {"--set", setting});
    }
    all.insert(all.end(), {"-n", ranks});
    return train(runs, all);
  };
  const nlohmann::json built_in = run("4", "");
  const nlohmann::json shared = run("4", table);
  EXPECT_EQ(bits_of(shared), bits_of(run("1", "")));
  EXPECT_NE(shared["groups"]["dp"]["bytes"], built_in["groups"]["dp"]["bytes"])
      << "the loss goes along the tree, where it was read from all by all";
  for (const nlohmann::json& rank : shared["ranks"]) {
    EXPECT_EQ(rank["dp_bytes"], rank["dp_planned_bytes"]) << rank["rank"];
  }
  const auto config =
      nlohmann::json::parse(text_of(shared["run"].get<std::string>() + "/config.json"));
  EXPECT_EQ(config["algorithms"]["rules"].size(), 3u);
}

TEST(Split, EachRankDoesItsShareAndMovesThePlannedBytes) {
  const TempFolder runs;
  const nlohmann::json alone = train(runs, nano(1));
  for (const int ranks : {2, 4}) {
    const nlohmann::json shared = train(runs, nano(ranks));
    ASSERT_EQ(shared["ranks"].size(), static_cast<size_t>(ranks));
    for (const nlohmann::json& rank : shared["ranks"]) {
      EXPECT_EQ(rank["samples"].get<int64_t>(), 320 / ranks);
      EXPECT_EQ(rank["gemm_flops"].get<int64_t>() * ranks,
                alone["ranks"][0]["gemm_flops"].get<int64_t>());
    }
    EXPECT_GT(shared["groups"]["dp"]["bytes"].get<int64_t>(), 0);
    EXPECT_EQ(shared["groups"]["dp"]["bytes"], shared["groups"]["dp"]["planned_bytes"]);
  }
}

TEST(Digest, AnIndependentProgramFindsTheSameInTheSavedFile) {
  const TempFolder runs;
  const nlohmann::json summary = train(runs, nano(2, {"--set", "run.steps=3"}));
  const std::string file = summary["run"].get<std::string>() + "/final.safetensors";
  const CommandResult reference = Command({"reference_digest", file}).wait();
  EXPECT_EQ(reference.out, summary["param_digest"].get<std::string>() + "\n") << reference.err;
}

TEST(Evaluation, OfTheSavedModelIsThatOfTheRun) {
  const TempFolder runs;
  const nlohmann::json summary = train(runs, nano(2, {"--set", "run.steps=3"}));
  for (const char* ranks : {"1", "3"}) {
    const CommandResult result =
        lockstep({"eval", summary["run"].get<std::string>(), "-n", ranks, "--json"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(nlohmann::json::parse(result.out)["val_loss"], summary["val_loss"]);
  }
}

TEST(Generation, OneSeedGivesOneText) {
  const TempFolder runs;
  const nlohmann::json summary = train(runs, nano(1, {"--set", "run.steps=3"}));
  const auto text = [&](const char* seed) {
    const CommandResult result =
        lockstep({"generate", summary["run"].get<std::string>(), "--prompt", "It was ", "--tokens",
                  "40", "--seed", seed});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  EXPECT_EQ(text("1").substr(0, 7), "It was ");
  EXPECT_EQ(text("1"), text("1"));
  EXPECT_NE(text("1"), text("2"));
}

}  // namespace
}  // namespace lockstep::testing
