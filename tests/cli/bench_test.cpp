#include "lockstep/cli/bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/files/temp_folder.h"

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

TEST(Bench, ReadsSizes) {
  EXPECT_EQ(parse_size("8"), 8);
  EXPECT_EQ(parse_size("64K"), 65'536);
  EXPECT_EQ(parse_size("64M"), 67'108'864);
  EXPECT_EQ(parse_size("1G"), 1'073'741'824);
  for (const char* text : {"", "M", "-1", "1.5M", "8B", "99999999999G", "64MB"}) {
    EXPECT_THROW(parse_size(text), UsageError) << text;
  }
}

TEST(Bench, StepsByFactorOrByBytes) {
  BenchOptions options;
  ASSERT_TRUE(parse_bench({"all_gather", "-n", "3", "-b", "8", "-e", "100"}, options));
  EXPECT_EQ(options.operation, net::Operation::all_gather);
  EXPECT_EQ(options.ranks, 3);
  EXPECT_EQ(bench_sizes(options), (std::vector<int64_t>{8, 16, 32, 64}));
  options = {};
  ASSERT_TRUE(parse_bench({"broadcast", "-b", "1K", "-e", "3K", "-i", "1K"}, options));
  EXPECT_EQ(bench_sizes(options), (std::vector<int64_t>{1024, 2048, 3072}));
}

TEST(Bench, RefusesWhatItCannotMeasure) {
  BenchOptions options;
  EXPECT_THROW((void)parse_bench({}, options), UsageError);
  EXPECT_THROW((void)parse_bench({"reduce"}, options), UsageError);
  EXPECT_THROW((void)parse_bench({"all_reduce", "-n", "0"}, options), UsageError);
  EXPECT_THROW((void)parse_bench({"all_reduce", "-f", "1"}, options), UsageError);
  EXPECT_THROW((void)parse_bench({"all_reduce", "-b", "2M", "-e", "1M"}, options), UsageError);
  EXPECT_THROW((void)parse_bench({"all_reduce", "--engine", "tcp"}, options), UsageError);
}

/// What the refusal says; empty if there is none.
std::string refusal(const std::vector<std::string>& args) {
  BenchOptions refused;
  try {
    (void)parse_bench(args, refused);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Bench, AlgorithmsAreThoseOfTheOperation) {
  using plan::Algorithm;
  BenchOptions options;
  ASSERT_TRUE(parse_bench(
      {"all_reduce", "-n", "4", "--algorithm", "ring,hierarchical", "--ranks-per-host", "2"},
      options));
  EXPECT_EQ(options.algorithms, (std::vector{Algorithm::ring, Algorithm::hierarchical}));
  EXPECT_EQ(options.hosts, (std::vector<std::vector<int>>{{0, 1}, {2, 3}}));
  const plan::AlgorithmTable table = table_of(options, Algorithm::ring);
  EXPECT_EQ(table.choose(plan::Collective::all_reduce, 8), Algorithm::ring);

  EXPECT_THAT(refusal({"broadcast", "--algorithm", "ring"}), HasSubstr("binomial"));
  EXPECT_THAT(refusal({"all_reduce", "--algorithm", "rign"}), HasSubstr("ring"));
  EXPECT_THAT(refusal({"all_reduce", "-n", "3", "--ranks-per-host", "2"}), HasSubstr("3 ranks"));
}

/// As in every other operation, one word for the default and for the flag.
TEST(Bench, DirectIsAnAlgorithmOfEveryOperation) {
  for (const char* operation :
       {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all"}) {
    BenchOptions options;
    ASSERT_TRUE(parse_bench({operation, "-n", "4", "--algorithm", "direct"}, options)) << operation;
    EXPECT_EQ(options.algorithms, BenchOptions().algorithms);
    EXPECT_EQ(plan::num_rounds(plan_of(options, plan::Algorithm::direct, 16)),
              operation == std::string("all_reduce") ? 2 : 1);
  }
}

TEST(Bench, RefusesBeforeAnythingRunsWhatTheRanksWould) {
  const files::TempFolder here("bench");
  const std::string topology = here.file("two.toml");
  std::ofstream(topology) << "[[hosts]]\nnames = [\"a\"]\npackages = [[\"2\"]]\n"
                             "[[hosts]]\nnames = [\"b\"]\npackages = [[\"1\"]]\n";
  const auto on_it = [&](std::vector<std::string> more) {
    std::vector<std::string> args = {"all_reduce", "-n",         "3",     "--engine",
                                     "threads",    "--topology", topology};
    args.insert(args.end(), more.begin(), more.end());
    return refusal(args);
  };
  EXPECT_EQ(on_it({"--slow-rank", "2"}), "");
  EXPECT_THAT(on_it({"--slow-rank", "3"}), HasSubstr("none of the ranks 0 to 2"));
  EXPECT_EQ(on_it({"--algorithm", "direct"}), "");
  EXPECT_THAT(on_it({"--algorithm", "direct,hierarchical"}),
              HasSubstr("a host has 2 ranks and another 1"));
  EXPECT_THAT(refusal({"all_reduce", "--plan", "--fit"}), HasSubstr("--plan starts nothing"));
  EXPECT_THAT(refusal({"all_reduce", "--plan", "--json"}), HasSubstr("--plan starts nothing"));
  EXPECT_THAT(refusal({"all_reduce", "-e", "100G"}), HasSubstr("Use -e 16G"));
  EXPECT_EQ(refusal({"all_reduce", "-e", "100G", "--memory", "ordinary"}), "");
}

TEST(Bench, ReadsItsTopologyOnce) {
  const files::TempFolder here("bench");
  const std::string topology = here.file("two.toml");
  std::ofstream(topology) << "[[hosts]]\nnames = [\"a\", \"b\"]\npackages = [[\"2\"]]\n";
  BenchOptions options;
  ASSERT_TRUE(parse_bench({"all_reduce", "-n", "4", "--engine", "threads", "--topology", topology,
                           "--algorithm", "hierarchical", "--jitter", "0.5"},
                          options));
  std::filesystem::remove(topology);
  EXPECT_EQ(options.hosts, (std::vector<std::vector<int>>{{0, 1}, {2, 3}}));
  EXPECT_EQ(options.network->jitter, 0.5);
  EXPECT_EQ(plan_of(options, plan::Algorithm::hierarchical, 64).ranks(), 4);
}

TEST(Bench, MemoryThatTheMachineLacksIsRefusedBeforeAnythingRuns) {
  EXPECT_THROW(bench_command({"all_reduce", "-n", "512", "-b", "1000000G", "-e", "1000000G",
                              "--memory", "ordinary"}),
               OutOfMemory);
}

TEST(Bench, ATableIsMadeOfAllOperationsOrOfThoseNamed) {
  BenchOptions options;
  ASSERT_TRUE(parse_bench({"--tune", "t.toml", "-n", "4"}, options));
  EXPECT_EQ(options.tuned_operations.size(), plan::kTunedOperations.size());
  EXPECT_EQ(bench_sizes(options),
            (std::vector<int64_t>{256, 2048, 16'384, 131'072, 1 << 20, 8 << 20}));
  options = {};
  ASSERT_TRUE(
      parse_bench({"broadcast,all_reduce", "--tune", "t.toml", "-b", "8", "-e", "64"}, options));
  EXPECT_EQ(options.tuned_operations,
            (std::vector{net::Operation::broadcast, net::Operation::all_reduce}));
  EXPECT_EQ(bench_sizes(options), (std::vector<int64_t>{8, 64}));

  EXPECT_THAT(refusal({"all_to_all", "--tune", "t.toml"}), HasSubstr("no size that all ranks"));
  EXPECT_THAT(refusal({"all_reduc", "--tune", "t.toml"}), HasSubstr("Did you mean \"all_reduce\""));
  EXPECT_THAT(refusal({"all_reduce,broadcast"}), HasSubstr("one operation"));
  EXPECT_THAT(refusal({"--tune", "t.toml", "-n", "1"}), HasSubstr("-n 2 or more"));
  EXPECT_THAT(refusal({"all_reduce", "--rounds", "2"}), HasSubstr("--tune FILE"));
  EXPECT_THAT(refusal({"--tune", "t.toml", "--plan"}), HasSubstr("--plan starts nothing"));
  for (const char* unheard : {"--fit", "--json", "--algorithm=ring", "--table=t.toml"}) {
    EXPECT_THAT(refusal({"all_reduce", "--tune", "t.toml", unheard}), HasSubstr("Leave out"));
  }
  EXPECT_THAT(refusal({"all_reduce", "--table", "t.toml", "--engine", "shm,threads"}),
              HasSubstr("wants one --engine"));
  EXPECT_THAT(refusal({"all_reduce", "--table", "t.toml", "--algorithm", "ring"}),
              HasSubstr("leave out --algorithm"));
}

TEST(Bench, SizesAreMeasuredByTheAlgorithmOfTheTable) {
  using plan::Algorithm;
  const files::TempFolder here("bench");
  const std::string table = here.file("t.toml");
  std::ofstream(table) << "schema = 1\n[[tables]]\nengine = \"threads\"\nranks = 4\nhosts = 2\n"
                          "[[tables.all_reduce]]\nalgorithm = \"binomial\"\nup_to_bytes = 64\n"
                          "[[tables.all_reduce]]\nalgorithm = \"hierarchical\"\n";
  const auto passes = [&](const std::string& operation, const std::string& per_host) {
    BenchOptions options;
    EXPECT_TRUE(parse_bench({operation, "-n", "4", "--engine", "threads", "--ranks-per-host",
                             per_host, "--table", table, "-b", "16", "-e", "256", "-f", "4"},
                            options));
    return bench_passes(options);
  };
  const std::vector<BenchPass> expected = {{Algorithm::binomial, {16, 64}},
                                           {Algorithm::hierarchical, {256}}};
  EXPECT_EQ(passes("all_reduce", "2"), expected);
  const std::vector<BenchPass> built_in = {{Algorithm::direct, {16, 64, 256}}};
  EXPECT_EQ(passes("all_reduce", "4"), built_in);
  EXPECT_EQ(passes("broadcast", "2"), built_in);
}

// nccl-tests, doc/PERFORMANCE.md.
TEST(Bench, BusBandwidthFactors) {
  EXPECT_DOUBLE_EQ(bus_factor(net::Operation::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(net::Operation::all_gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(net::Operation::reduce_scatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(net::Operation::all_to_all, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(net::Operation::broadcast, 4), 1);
}

}  // namespace
}  // namespace lockstep::cli
