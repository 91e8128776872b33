#include "lockstep/plan/algorithm_table.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/plan/collective_check.h"

namespace lockstep::plan {
namespace {

TEST(AlgorithmTable, TheFirstRuleThatFitsDecides) {
  const AlgorithmTable table{.rules = {{Collective::all_reduce, Algorithm::halving, 1024},
                                       {Collective::broadcast, Algorithm::binomial},
                                       {Collective::all_reduce, Algorithm::ring, 1 << 20}},
                             .hosts = {}};
  EXPECT_EQ(table.choose(Collective::all_reduce, 0), Algorithm::halving);
  EXPECT_EQ(table.choose(Collective::all_reduce, 1024), Algorithm::halving);
  EXPECT_EQ(table.choose(Collective::all_reduce, 1025), Algorithm::ring);
  EXPECT_EQ(table.choose(Collective::all_reduce, (1 << 20) + 1), Algorithm::direct);
  EXPECT_EQ(table.choose(Collective::broadcast, int64_t{1} << 40), Algorithm::binomial);
  EXPECT_EQ(table.choose(Collective::all_gather, 8), Algorithm::direct);
}

TEST(AlgorithmTable, OverHostsLargeSumsAreHierarchicalWhereThatKeepsTheBits) {
  const std::vector<std::vector<int>> even = {{0, 1}, {2, 3}};
  const AlgorithmTable table = over_hosts({}, even, even);
  EXPECT_EQ(table.hosts, even);
  EXPECT_EQ(table.choose(Collective::all_reduce, kHierarchicalBytes - 1), Algorithm::direct);
  EXPECT_EQ(table.choose(Collective::all_reduce, kHierarchicalBytes), Algorithm::hierarchical);
  EXPECT_EQ(table.choose(Collective::all_gather, 1 << 30), Algorithm::direct);

  for (const std::vector<std::vector<int>>& no_subtrees :
       {std::vector<std::vector<int>>{{0, 1}, {2}},
        {{0, 2}, {1, 3}},
        {{2, 3}, {0, 1}},
        {{0, 1, 2}, {3, 4, 5}},
        {{0}, {1}},
        {{0, 1}}}) {
    EXPECT_FALSE(hosts_are_subtrees(no_subtrees));
    EXPECT_EQ(over_hosts({}, no_subtrees, even).choose(Collective::all_reduce, 1 << 30),
              Algorithm::direct);
  }
  const AlgorithmTable forced{.rules = {{Collective::all_reduce, Algorithm::halving}}, .hosts = {}};
  EXPECT_EQ(over_hosts(forced, even, even).choose(Collective::all_reduce, 1 << 30),
            Algorithm::halving);
}

/// What is called canonical here is what the checker finds so.
TEST(AlgorithmTable, HostsThatAreSubtreesKeepTheTree) {
  for (const int each : {2, 4, 8}) {
    for (const int hosts : {2, 3, 5}) {
      std::vector<std::vector<int>> all(static_cast<size_t>(hosts));
      for (int r = 0; r < hosts * each; ++r) all[static_cast<size_t>(r / each)].push_back(r);
      ASSERT_TRUE(hosts_are_subtrees(all));
      EXPECT_TRUE(is_canonical(plan_hierarchical_all_reduce(all, 64))) << hosts << " x " << each;
    }
  }
}

TEST(AlgorithmTable, TravelsAsJson) {
  const AlgorithmTable table{.rules = {{Collective::all_reduce, Algorithm::hierarchical, 1024},
                                       {Collective::broadcast, Algorithm::binomial}},
                             .hosts = {{0, 1}, {2, 3}}};
  EXPECT_EQ(algorithm_table_from_json(to_json(table)), table);
  EXPECT_EQ(algorithm_table_from_json(to_json(AlgorithmTable{})), AlgorithmTable{});
  for (const char* wrong :
       {"{}", "[]", R"({"hosts": [], "rules": [{"operation": "all_reduce"}]})",
        R"({"hosts": [], "rules": [{"operation": "all_reduce", "algorithm": "rign"}]})",
        R"({"hosts": [], "rules": [{"operation": "all_reuse", "algorithm": "ring"}]})"}) {
    EXPECT_THROW(algorithm_table_from_json(nlohmann::json::parse(wrong)), UsageError) << wrong;
  }
}

}  // namespace
}  // namespace lockstep::plan
