#include "lockstep/plan/layout_check.h"

#include <gtest/gtest.h>

#include "tests/plan/machines.h"

namespace lockstep::plan {
namespace {

using Lines = std::vector<std::string>;

TrainConfig run_with(const std::vector<std::pair<std::string, std::string>>& settings) {
  TrainConfig config = preset("nano");
  set_key(config, "data.global_batch", "32");
  for (const auto& [key, value] : settings) set_key(config, key, value);
  return config;
}

Lines warnings(const TrainConfig& config, const Topology& topology, int ranks) {
  check(config, ranks);
  return layout_warnings(config, place_ranks(topology, ranks));
}

TEST(LayoutCheck, AxesOnTheLinksThatTheyAskForAreFine) {
  const Topology two_hosts = machines(2, {.cores = 4});
  EXPECT_EQ(warnings(run_with({}), two_hosts, 8), Lines{});
  EXPECT_EQ(warnings(run_with({{"parallel.tensor", "4"}}), two_hosts, 8), Lines{});
  EXPECT_EQ(
      warnings(run_with({{"parallel.pipeline", "2"}, {"parallel.tensor", "2"}}), two_hosts, 8),
      Lines{});
  EXPECT_EQ(
      warnings(run_with({{"parallel.replicas", "2"}, {"parallel.shard", "zero3"}}), two_hosts, 8),
      Lines{});
}

TEST(LayoutCheck, TensorParallelismAcrossHostsIsToldInSettingsThatKeepTheBits) {
  const Topology two_hosts = machines(2, {.cores = 2});
  const Lines found = warnings(run_with({{"parallel.tensor", "4"}}), two_hosts, 4);
  EXPECT_EQ(found,
            Lines{"tp group {0, 1, 2, 3} crosses hosts (1 GB/s, assumed) while tp asks for links "
                  "inside a host: --set parallel.tensor=2 --set numerics.tensor_grains=4"});
  EXPECT_EQ(
      warnings(run_with({{"parallel.tensor", "2"}, {"numerics.tensor_grains", "4"}}), two_hosts, 4),
      Lines{});
  // Grains that are given stay as they are.
  EXPECT_EQ(warnings(run_with({{"parallel.tensor", "4"}, {"numerics.tensor_grains", "4"}}),
                     two_hosts, 4)[0]
                .find("tensor_grains"),
            std::string::npos);
}

TEST(LayoutCheck, EachAxisIsWarnedOfByItsName) {
  // Blocks of 4 neighbours on hosts of 6: the second lies on both.
  const Topology two_hosts = machines(2, {.cores = 6});
  const auto first = [&](const TrainConfig& config) {
    const Lines lines = warnings(config, two_hosts, 12);
    return lines.empty() ? "none" : lines[0];
  };
  EXPECT_EQ(first(run_with({{"parallel.pipeline", "3"}, {"data.micro_batch", "2"}})),
            "dp group {4, 5, 6, 7} crosses hosts (1 GB/s, assumed) while a cache has room for its "
            "block of 4 ranks: place a multiple of 4 ranks in each cache");
  EXPECT_EQ(
      first(run_with(
          {{"parallel.pipeline", "3"}, {"parallel.shard", "zero2"}, {"data.micro_batch", "2"}})),
      "shard group {4, 5, 6, 7} crosses hosts (1 GB/s, assumed) while a cache has room for "
      "its block of 4 ranks: --set parallel.replicas=2, or place a multiple of 4 ranks in "
      "each cache");
  EXPECT_EQ(first(run_with({{"parallel.pipeline", "4"},
                            {"parallel.replicas", "3"},
                            {"parallel.shard", "zero1"}}))
                .substr(0, 35),
            "pp group {4, 5, 6, 7} crosses hosts");
}

TEST(LayoutCheck, OnlyWhatHelpsIsAdvised) {
  const auto help = [](const TrainConfig& config, int cores, int ranks) {
    const Lines lines = warnings(config, machines(2, {.cores = cores}), ranks);
    return lines.size() == 1 ? lines[0].substr(lines[0].rfind(": ") + 2) : base::joined(lines);
  };
  // Two ranks a layer would be two data-parallel ranks, and the run says that there is one.
  EXPECT_EQ(help(run_with({{"parallel.tensor", "4"}, {"parallel.data", "1"}}), 2, 4),
            "give the job hosts with more cores, or another mesh");
  // Two stages of shards of two would cross hosts again.
  EXPECT_EQ(help(run_with({{"parallel.pipeline", "4"},
                           {"parallel.replicas", "3"},
                           {"parallel.shard", "zero1"}}),
                 6, 12),
            "place a multiple of 4 ranks in each cache");
}

}  // namespace
}  // namespace lockstep::plan
