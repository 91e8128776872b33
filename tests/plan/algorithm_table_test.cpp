#include "lockstep/plan/algorithm_table.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace lockstep::plan
