#include "lockstep/cli/bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

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

TEST(Bench, AlgorithmsAreThoseOfTheOperation) {
  using plan::Algorithm;
  BenchOptions options;
  ASSERT_TRUE(parse_bench(
      {"all_reduce", "-n", "4", "--algorithm", "ring,hierarchical", "--ranks-per-host", "2"},
      options));
  EXPECT_EQ(options.algorithms, (std::vector{Algorithm::ring, Algorithm::hierarchical}));
  EXPECT_EQ(hosts_of(options), (std::vector<std::vector<int>>{{0, 1}, {2, 3}}));
  const plan::AlgorithmTable table = table_of(options, Algorithm::ring);
  EXPECT_EQ(table.choose(plan::Collective::all_reduce, 8), Algorithm::ring);

  const auto message = [](const std::vector<std::string>& args) {
    BenchOptions refused;
    try {
      (void)parse_bench(args, refused);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(message({"broadcast", "--algorithm", "ring"}), HasSubstr("binomial"));
  EXPECT_THAT(message({"all_reduce", "--algorithm", "rign"}), HasSubstr("ring"));
  EXPECT_THAT(message({"all_reduce", "-n", "3", "--ranks-per-host", "2"}), HasSubstr("3 ranks"));
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
