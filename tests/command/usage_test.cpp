// What a user gets wrong: the message names the rule, the numbers and what helps.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/command/command.h"

namespace lockstep::testing {
namespace {

struct Mistake {
  const char* name;
  std::vector<std::string> arguments;
  int exit_code;
  std::vector<std::string> said;  // each appears in stderr
};

class Mistakes : public ::testing::TestWithParam<Mistake> {};

TEST_P(Mistakes, AreExplained) {
  const TempFolder runs;
  std::vector<std::string> arguments = GetParam().arguments;
  const CommandResult result = lockstep(arguments, {"LOCKSTEP_SET_RUN__DIR=" + runs.path()});
  EXPECT_EQ(result.exit_code, GetParam().exit_code) << result.err;
  for (const std::string& words : GetParam().said) {
    EXPECT_NE(result.err.find(words), std::string::npos) << "\"" << words << "\" not in:\n"
                                                         << result.err;
  }
  EXPECT_TRUE(std::filesystem::is_empty(runs.path())) << "a run folder was made for nothing";
}

INSTANTIATE_TEST_SUITE_P(
    Usage, Mistakes,
    ::testing::Values(
        Mistake{"NoArguments", {}, 2, {"train"}},
        Mistake{"UnknownCommand", {"trian"}, 2, {"train"}},
        Mistake{"UnknownFlag", {"train", "--presett", "nano"}, 2, {"--preset"}},
        Mistake{"UnknownPreset", {"train", "--preset", "nanoo"}, 2, {"nano"}},
        Mistake{"MisspeltKey",
                {"train", "--preset", "nano", "--set", "optim.learning_rate=1"},
                2,
                {"optim.learning_rate"}},
        Mistake{"NearKey",
                {"train", "--preset", "nano", "--set", "optim.warmup_step=1"},
                2,
                {"optim.warmup_steps"}},
        Mistake{"BatchThatDoesNotDivide",
                {"train", "--preset", "nano", "--set", "data.global_batch=15"},
                2,
                {"15", "4", "data.global_batch"}},
        Mistake{"GrainsThatDoNotDivide",
                {"train", "--preset", "nano", "--set", "numerics.grains=3"},
                2,
                {"3", "numerics.grains"}},
        Mistake{"MoreRanksThanLeaves",
                {"train", "--preset", "nano", "-n", "5"},
                2,
                {"5", "4", "numerics.grains"}},
        Mistake{"NoTableOfAlgorithms",
                {"train", "--preset", "nano", "-n", "2", "--set", "comm.table=nowhere.toml"},
                2,
                {"nowhere.toml", "lockstep bench --tune"}},
        Mistake{"NoSuchTopology",
                {"train", "--preset", "nano", "-n", "2", "--topology", "nowhere.toml"},
                2,
                {"nowhere.toml"}},
        Mistake{"NoFolderForATable",
                {"bench", "--tune", "nowhere/t.toml", "-n", "2", "--iters", "1000000"},
                3,
                {"nowhere/t.toml"}},
        Mistake{"NoSuchSlowRank",
                {"bench", "all_reduce", "-n", "2", "--engine", "threads", "--topology",
                 "nowhere.toml", "--slow-rank", "2"},
                2,
                {"ranks 0 to 1"}},
        Mistake{"MoreMemoryThanThereIs",
                {"bench", "all_reduce", "-n", "2", "--memory", "ordinary", "-b", "900000G", "-e",
                 "900000G"},
                7,
                {"smaller -e"}},
        Mistake{"NoRanks", {"train", "--preset", "nano", "-n", "0"}, 2, {"0"}},
        Mistake{"MissingData",
                {"train", "--preset", "nano", "--set", "data.train=nowhere/train.bin"},
                3,
                {"nowhere/train.bin", "lockstep data prepare austen"}},
        Mistake{"MissingRun", {"eval", "runs/never-was"}, 6, {"runs/never-was"}},
        Mistake{"NoNumber", {"train", "--preset", "nano", "--set", "optim.lr=fast"}, 2, {"fast"}},
        Mistake{"ModelTooLarge",
                {"train", "--preset", "nano", "--set", "model.layers=9999", "--set",
                 "model.width=16384"},
                7,
                {"does not fit", "model.width"}},
        Mistake{"TimesThatAreNone",
                {"train", "--preset", "nano", "--synthetic-compute", "20,x", "--dry-run"},
                2,
                {"run.synthetic_compute = \"20,x\"", "20,20,20"}},
        Mistake{"StepsThatAreNone",
                {"train", "--preset", "nano", "-n", "2", "--set", "log.trace_steps=7-5"},
                2,
                {"log.trace_steps", "5-7"}},
        Mistake{"NoSuchSchedule",
                {"train", "--preset", "nano", "-n", "2", "--set", "parallel.pipeline=2", "--set",
                 "parallel.schedule=nowhere.csv"},
                2,
                {"nowhere.csv", "lockstep schedule --csv FILE"}},
        Mistake{"NoScheduleToShow",
                {"schedule", "--schedule", "nowhere.csv"},
                2,
                {"nowhere.csv", "lockstep schedule --csv FILE"}},
        Mistake{"TiedMlp",
                {"train", "--preset", "nano", "--set", "model.family=mlp"},
                2,
                {"model.tied=false"}},
        Mistake{"HeadsThatDoNotDivide",
                {"train", "--preset", "nano", "--set", "model.heads=5"},
                2,
                {"5", "128"}}),
    [](const auto& info) { return info.param.name; });

TEST(Usage, DryRunStartsNothing) {
  const TempFolder runs;
  const CommandResult result = lockstep(
      {"train", "--preset", "nano", "-n", "3", "--dry-run", "--set", "run.dir=" + runs.path()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(std::filesystem::is_empty(runs.path()));
}

/// Once: by rank 0, before the first step.
TEST(Usage, ALayoutThatDoesNotFitItsLinksIsWarnedOf) {
  const TempFolder here;
  const std::string topology = here.file("c.toml");
  std::ofstream(topology) << "[[hosts]]\nnames = [\"a\", \"b\"]\npackages = [[\"1\"]]\n";
  const auto said = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = tiny_nano();
    words.insert(words.begin(), "train");
    words.insert(words.end(), {"-n", "2", "--topology", topology, "--set", "run.steps=1", "--set",
                               "run.dir=" + here.path()});
    words.insert(words.end(), more.begin(), more.end());
    const CommandResult result = lockstep(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.err;
  };
  const std::string warning =
      "warning: tp group {0, 1} crosses hosts (1 GB/s, assumed) while tp asks for links inside a "
      "host: --set parallel.tensor=1 --set numerics.tensor_grains=2\n";
  EXPECT_EQ(said({"--set", "parallel.tensor=2", "--dry-run"}), warning);
  const std::string run = said({"--set", "parallel.tensor=2"});
  EXPECT_NE(run.find(warning), std::string::npos) << run;
  EXPECT_EQ(run.find("warning", run.find(warning) + 1), std::string::npos) << run;
  EXPECT_EQ(said({"--set", "parallel.pipeline=2", "--set", "model.layers=2", "--dry-run"}), "");
}

TEST(Usage, PrintConfigShowsEachOrigin) {
  const CommandResult result =
      lockstep({"train", "--preset", "nano", "--set", "optim.lr=0.5", "--print-config"},
               {"LOCKSTEP_SET_RUN__SEED=99"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* words :
       {"lr = 0.5", "--set", "seed = 99", "LOCKSTEP_SET_RUN__SEED", "[optim]"}) {
    EXPECT_NE(result.out.find(words), std::string::npos) << words << " not in:\n" << result.out;
  }
}

TEST(Usage, BenchCountsNoWrongResult) {
  const CommandResult result = lockstep(
      {"bench", "all_reduce", "-n", "2", "-b", "8", "-e", "64K", "-f", "8", "--iters", "5"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("# Out of bounds values : 0 OK"), std::string::npos) << result.out;
}

/// Every algorithm, the sizes from one element to more than a chunk: what the plan says is what the
/// ranks counted.
TEST(Usage, BenchOfEveryAlgorithmCountsWhatItsPlanSays) {
  for (const auto& [operation, algorithms] : every_algorithm()) {
    for (const std::string engine : {"shm", "threads"}) {
      const CommandResult result =
          lockstep({"bench", operation, "-n", "4", "--ranks-per-host", "2", "--engine", engine,
                    "--algorithm", algorithms, "-b", "16", "-e", "1M", "-f", "64", "--iters", "2",
                    "--json"});
      ASSERT_EQ(result.exit_code, 0) << result.err;
      const auto json = nlohmann::json::parse(result.out);
      int rows = 0;
      for (const auto& row : json["results"]) {
        EXPECT_EQ(row["wrong"], 0) << row;
        EXPECT_EQ(row["counted_bytes"], row["expected_bytes"]) << row;
        EXPECT_GT(row["counted_bytes"], 0) << row;
        ++rows;
      }
      EXPECT_EQ(rows, 3 * (1 + std::count(algorithms.begin(), algorithms.end(), ',')));
    }
  }
}

TEST(Usage, BenchSetsEnginesSideBySide) {
  const std::vector<std::string> words = {"bench",   "broadcast", "-n",       "2",          "-b",
                                          "64",      "-e",        "4K",       "-f",         "64",
                                          "--iters", "3",         "--engine", "threads,shm"};
  const CommandResult table = lockstep(words);
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_NE(table.out.find("threads          shm"), std::string::npos) << table.out;
  std::vector<std::string> as_json = words;
  as_json.emplace_back("--json");
  const CommandResult result = lockstep(as_json);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto engines = nlohmann::json::parse(result.out)["engines"];
  ASSERT_EQ(engines.size(), 2u);
  EXPECT_EQ(engines[0]["engine"], "threads");
  EXPECT_EQ(engines[1]["engine"], "shm");
  EXPECT_EQ(engines[1]["results"].size(), 2u);
}

/// Times of a model are the same every time: the table is, too, and so are the algorithms by it.
TEST(Usage, BenchTunesATableAndFollowsIt) {
  const TempFolder here;
  const std::string topology = here.file("c.toml");
  const std::string table = here.file("t.toml");
  std::ofstream(topology) << "[[hosts]]\nnames = [\"a\", \"b\"]\npackages = [[\"4\"]]\n"
                             "[links.cache]\nlatency_us = 0.2\ngb_per_s = 20\n"
                             "[links.network]\nlatency_us = 10\ngb_per_s = 1\n";
  const std::vector<std::string> on_it = {
      "-n", "8",  "--engine", "threads", "--topology", topology, "-b", "256",
      "-e", "1M", "-f",       "64",      "--iters",    "1",      "-w", "0"};
  const auto bench = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "bench");
    words.insert(words.end(), on_it.begin(), on_it.end());
    return lockstep(words);
  };
  const CommandResult tuned =
      bench({"all_reduce,reduce_scatter", "--tune", table, "--rounds", "2"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_NE(tuned.err.find("by the formulas: all_reduce: direct to 256 B, hierarchical\n"),
            std::string::npos)
      << tuned.err;
  EXPECT_NE(
      tuned.out.find("all_reduce: hierarchical; reduce_scatter: direct to 16.0 KiB, halving\n"),
      std::string::npos)
      << tuned.out;

  const CommandResult followed = bench({"reduce_scatter", "--table", table, "--json"});
  ASSERT_EQ(followed.exit_code, 0) << followed.err;
  const auto results = nlohmann::json::parse(followed.out)["results"];
  EXPECT_EQ(results[0]["algorithm"], "direct");
  EXPECT_EQ(results[2]["algorithm"], "halving");

  // Another number of ranks is added; measured again, the first one stays as it is.
  const std::string before = text_of(table);
  ASSERT_EQ(lockstep({"bench", "all_reduce", "--tune", table, "-n", "2", "--engine", "threads",
                      "-e", "256", "--iters", "1", "--rounds", "1"})
                .exit_code,
            0);
  EXPECT_TRUE(text_of(table).starts_with(before)) << text_of(table);
  EXPECT_NE(text_of(table).find("ranks = 2"), std::string::npos);
  std::ofstream(table) << "schema = 9\n";
  const CommandResult refused = bench({"--tune", table});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find(table + ":1: this lockstep reads schema 1"), std::string::npos)
      << refused.err;
}

TEST(Usage, BenchPrintsThePlanAndStartsNothing) {
  const CommandResult result =
      lockstep({"bench", "all_reduce", "-n", "4", "-b", "256", "--algorithm", "ring", "--plan"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(result.out.starts_with("all_reduce ring, 4 ranks, 64 elements\nround 0: "))
      << result.out;
  EXPECT_NE(result.out.find("round 5:"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("rank 0 sends [48,64) to 1"), std::string::npos) << result.out;
}

TEST(Usage, BenchFitsLatencyAndBandwidth) {
  const CommandResult result =
      lockstep({"bench", "all_reduce", "-n", "2", "--engine", "threads", "--algorithm", "ring",
                "-b", "64", "-e", "1M", "-f", "16", "--iters", "5", "--fit", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("# fit ring: "), std::string::npos) << result.err;
  for (const auto& fit : nlohmann::json::parse(result.out)["fits"]) {
    EXPECT_GT(fit["gb_per_s"].get<double>(), 0);
    EXPECT_EQ(fit["residuals"].size(), 4u);
  }
}

TEST(Usage, DoctorSaysWhatThisMachineHas) {
  const CommandResult result = lockstep({"doctor"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_NE((result.out + result.err).find("LibTorch"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::testing
