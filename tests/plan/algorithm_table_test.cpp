#include "lockstep/plan/algorithm_table.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

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
