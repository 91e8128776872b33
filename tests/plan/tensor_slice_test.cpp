// Grains of parameters, parameters of stages, and what both are of the logical ones.

#include <gtest/gtest.h>

#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/plan/buckets.h"
#include "lockstep/plan/param_table.h"

namespace lockstep::plan {
namespace {

Param grain_of(std::vector<int64_t> shape, int dim, std::vector<int64_t> blocks, int grain,
               int grains) {
  TensorSlice slice{.logical = "w",
                    .shape = shape,
                    .dim = dim,
                    .blocks = blocks,
                    .grain = grain,
                    .grains = grains};
  int64_t along = 0;
  for (const int64_t block : blocks) along += block;
  shape[static_cast<size_t>(dim)] = along / grains;
  const ParamTable table = make_param_table(
      {{.name = "w@" + std::to_string(grain), .shape = shape, .init = {}, .slice = slice}}, {});
  return table.params[0];
}

/// All grains together have every logical element once, in any cut of their own elements.
TEST(TensorSlice, GrainsCoverTheLogicalParameterOnce) {
  struct Case {
    std::vector<int64_t> shape;
    int dim;
    std::vector<int64_t> blocks;
  };
  const std::vector<Case> cases = {{{12, 5}, 0, {12}},       {{5, 12}, 1, {12}},
                                   {{24, 7}, 0, {12, 8, 4}}, {{24}, 0, {8, 8, 8}},
                                   {{61, 3}, 0, {64}},       {{2, 8, 3}, 1, {4, 4}}};
  for (const Case& c : cases) {
    for (const int grains : {1, 2, 4}) {
      int64_t numel = 1;
      for (const int64_t size : c.shape) numel *= size;
      std::vector<int> seen(static_cast<size_t>(numel));
      for (int grain = 0; grain < grains; ++grain) {
        const Param param = grain_of(c.shape, c.dim, c.blocks, grain, grains);
        for (int64_t lo = 0; lo < param.numel; lo += 7) {
          const int64_t hi = std::min(param.numel, lo + 7);
          int64_t next = lo;
          for (const LogicalRun& run : logical_runs(param, lo, hi)) {
            EXPECT_EQ(run.lo, next);
            next = run.hi;
            for (int64_t i = 0; run.first >= 0 && i < run.size(); ++i) {
              ++seen.at(static_cast<size_t>(run.first + i));
            }
          }
          EXPECT_EQ(next, hi);
        }
      }
      EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
    }
  }
}

TEST(TensorSlice, RowsOfEachBlock) {
  // Blocks of 4, 2 and 2 rows: grain 1 has rows 2 3, 5, 7.
  const Param param = grain_of({8, 10}, 0, {4, 2, 2}, 1, 2);
  const std::vector<LogicalRun> runs = logical_runs(param, 0, param.numel);
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[0].first, 20);
  EXPECT_EQ(runs[0].size(), 20);
  EXPECT_EQ(runs[1].first, 50);
  EXPECT_EQ(runs[2].first, 70);
}

TEST(TensorSlice, WhatIsNoGrainIsRefused) {
  ParamDeclaration declared{.name = "w@0", .shape = {4, 3}, .init = {}};
  declared.slice = {
      .logical = "w", .shape = {8, 3}, .dim = 0, .blocks = {8}, .grain = 0, .grains = 2};
  EXPECT_NO_THROW(make_param_table({declared}, {}));
  declared.slice.grain = 2;
  EXPECT_THROW(make_param_table({declared}, {}), UsageError);
  declared.slice.grain = 0;
  declared.slice.blocks = {6};  // less than the parameter has
  EXPECT_THROW(make_param_table({declared}, {}), UsageError);
  declared.slice.blocks = {5, 3};
  EXPECT_THROW(make_param_table({declared}, {}), UsageError);
}

TEST(StageParameters, AUseElsewhereIsKnownByTheModelsName) {
  const std::vector<Tie> ties = {{.use = "head.weight", .of = "embed.weight"}};
  const ParamTable first = make_param_table({{.name = "embed.weight", .shape = {8, 4}, .init = {}},
                                             {.name = "a", .shape = {4}, .init = {}}},
                                            ties, /*is_part=*/true);
  const ParamTable last = make_param_table({{.name = "b", .shape = {4}, .init = {}},
                                            {.name = "head.weight", .shape = {8, 4}, .init = {}}},
                                           ties, /*is_part=*/true);
  const Param& here = first.params[0];
  const Param& there = last.params[1];
  EXPECT_EQ(here.name, "embed.weight");
  EXPECT_EQ(there.name, "embed.weight");
  EXPECT_EQ(there.uses, std::vector<std::string>{"head.weight"});
  EXPECT_EQ(there.elsewhere, std::vector<std::string>{"embed.weight"});
  EXPECT_EQ(here.elsewhere, std::vector<std::string>{"head.weight"});
  EXPECT_TRUE(here.is_across && there.is_across);
  // Its bucket waits for the other stage, and for nobody else.
  for (const Bucket& bucket : plan_buckets(first, 1 << 20, 1 << 20).buckets) {
    EXPECT_EQ(bucket.params.size(), 1u);
  }
  // The whole model is no part: the tie needs both.
  EXPECT_THROW(make_param_table({{.name = "head.weight", .shape = {8, 4}, .init = {}}}, ties),
               UsageError);
}

TEST(StageParameters, BucketsAreOfOneChunk) {
  const ParamTable table = make_param_table({{.name = "a", .shape = {4}, .init = {}},
                                             {.name = "b", .shape = {4}, .init = {}},
                                             {.name = "c", .shape = {4}, .init = {}, .chunk = 1}},
                                            {});
  const BucketPlan buckets = plan_buckets(table, 1 << 20, 1 << 20);
  ASSERT_EQ(buckets.buckets.size(), 2u);
  EXPECT_EQ(buckets.buckets[0].params, std::vector<int>{2});
}

TEST(StageParameters, MoreThanTwoUsesOverPiecesAreRefused) {
  const std::vector<ParamDeclaration> declared = {
      {.name = "a", .shape = {4}, .init = {}},
      {.name = "b", .shape = {4}, .init = {}, .chunk = 1},
      {.name = "c", .shape = {4}, .init = {}}};
  EXPECT_THROW(make_param_table(declared, {{"b", "a"}, {"c", "a"}}), UsageError);
}

}  // namespace
}  // namespace lockstep::plan
