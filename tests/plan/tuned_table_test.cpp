#include "lockstep/plan/tuned_table.h"

#include <gtest/gtest.h>

#include "lockstep/plan/collective_check.h"
#include "tests/plan/collective_cases.h"

namespace lockstep::plan {
namespace {

constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();

/// The rule of thumb against the proof of the plans themselves.
TEST(TunedTable, TheOrderIsKeptWhereTheCheckerSaysSo) {
  for (int ranks = 1; ranks <= 20; ++ranks) {
    const int64_t count = 16 * 4 * ranks + 3;
    const std::vector<int64_t> counts(static_cast<size_t>(ranks), 5);
    for (int hosts = 1; hosts <= ranks; ++hosts) {
      if (ranks % hosts != 0) continue;
      for (const Algorithm algorithm : algorithms_of(Collective::all_reduce)) {
        const CollectivePlan plan =
            algorithm == Algorithm::hierarchical
                ? plan_hierarchical_all_reduce(runs_of(ranks / hosts, ranks), count)
                : plan_all_reduce(algorithm, ranks, count);
        EXPECT_EQ(keeps_the_order(Collective::all_reduce, algorithm, ranks, hosts),
                  is_canonical(plan))
            << name_of(algorithm) << ", " << ranks << " ranks on " << hosts << " hosts";
      }
      for (const Algorithm algorithm : algorithms_of(Collective::reduce_scatter)) {
        EXPECT_EQ(keeps_the_order(Collective::reduce_scatter, algorithm, ranks, hosts),
                  is_canonical(plan_reduce_scatter(algorithm, counts)))
            << name_of(algorithm) << ", " << ranks << " ranks";
      }
    }
  }
  EXPECT_TRUE(keeps_the_order(Collective::all_gather, Algorithm::ring, 7, 1)) << "adds nothing";
}

TEST(TunedTable, CandidatesKeepTheOrderAndAreNotOneTwice) {
  using enum Algorithm;
  EXPECT_EQ(candidates(Collective::all_reduce, 8, 1), (std::vector{direct, halving, binomial}));
  EXPECT_EQ(candidates(Collective::all_reduce, 8, 8), (std::vector{direct, halving, binomial}));
  EXPECT_EQ(candidates(Collective::all_reduce, 8, 2),
            (std::vector{direct, halving, binomial, hierarchical}));
  EXPECT_EQ(candidates(Collective::all_reduce, 6, 2), (std::vector{direct, halving, binomial}));
  EXPECT_EQ(candidates(Collective::reduce_scatter, 2, 1), (std::vector{direct, ring, halving}));
  EXPECT_EQ(candidates(Collective::all_gather, 8, 1), (std::vector{direct, ring, halving, bruck}));
}

SizeTimes times(int64_t bytes, double direct, double halving, double spread) {
  return {bytes, {{Algorithm::direct, direct, spread / 2}, {Algorithm::halving, halving, spread}}};
}

TEST(TunedTable, AWinnerBeatsTheBuiltInChoiceByMoreThanTheSpread) {
  EXPECT_EQ(winner(times(8, 10, 8, 1.9)), Algorithm::halving);
  EXPECT_EQ(winner(times(8, 10, 8, 2.0)), Algorithm::direct);
  EXPECT_EQ(winner(times(8, 8, 10, 0)), Algorithm::direct);
  EXPECT_EQ(winner(times(8, 8, 8, 0)), Algorithm::direct);
  EXPECT_EQ(winner({8, {{Algorithm::direct, 10, 3}, {Algorithm::binomial, 8, 0}}}),
            Algorithm::direct)
      << "the spread of the built-in choice counts as well";
  EXPECT_EQ(
      winner(
          {8,
           {{Algorithm::direct, 10, 0}, {Algorithm::halving, 9, 0}, {Algorithm::binomial, 8, 0}}}),
      Algorithm::binomial);
}

TEST(TunedTable, NeighboursWithOneWinnerAreOneRow) {
  const std::vector<SizeTimes> sizes = {times(8, 2, 1, 0), times(64, 2, 1, 0), times(512, 1, 2, 0),
                                        times(4096, 2, 1, 0)};
  const std::vector<TunedRow> rows = rows_of(sizes);
  const std::vector<TunedRow> expected = {
      {Algorithm::halving, 64, {sizes[0], sizes[1]}},
      {Algorithm::direct, 512, {sizes[2]}},
      {Algorithm::halving, kNoEnd, {sizes[3]}},
  };
  EXPECT_EQ(rows, expected);
  EXPECT_TRUE(rows_of({}).empty());
}

TunedSection section(const TunedFor& where, Collective operation, Algorithm algorithm) {
  return {.where = where,
          .machine = name_of(algorithm),
          .rows = {{operation, {{.algorithm = algorithm, .measured = {}}}}}};
}

TEST(TunedTable, AnotherMeasurementReplacesItsOperationsAndNothingElse) {
  const TunedFor two{.engine = "shm", .ranks = 2};
  const TunedFor four{.engine = "shm", .ranks = 4};
  TunedTable table;
  put(table, section(two, Collective::all_reduce, Algorithm::direct));
  put(table, section(four, Collective::all_reduce, Algorithm::direct));
  put(table, section(two, Collective::broadcast, Algorithm::binomial));
  put(table, section(two, Collective::all_reduce, Algorithm::halving));
  ASSERT_EQ(table.size(), 2u);
  EXPECT_EQ(table[0].rows.at(Collective::all_reduce)[0].algorithm, Algorithm::halving);
  EXPECT_EQ(table[0].rows.at(Collective::broadcast)[0].algorithm, Algorithm::binomial);
  EXPECT_EQ(section_for(table, four)->rows.at(Collective::all_reduce)[0].algorithm,
            Algorithm::direct);
  for (const TunedFor& other :
       {TunedFor{.engine = "mpi", .ranks = 2}, TunedFor{.engine = "shm", .ranks = 2, .hosts = 2},
        TunedFor{.engine = "shm", .ranks = 2, .modelled = true}}) {
    EXPECT_EQ(section_for(table, other), nullptr) << text(other);
  }
}

TEST(TunedTable, RulesChooseAsTheRowsSay) {
  TunedSection tuned{.where = {.engine = "mpi", .ranks = 4, .hosts = 2}, .machine = {}, .rows = {}};
  tuned.rows[Collective::all_reduce] = {{Algorithm::binomial, 2048, {}},
                                        {Algorithm::hierarchical, kNoEnd, {}}};
  const AlgorithmTable rules = rules_of(tuned);
  EXPECT_EQ(rules.choose(Collective::all_reduce, 2048), Algorithm::binomial);
  EXPECT_EQ(rules.choose(Collective::all_reduce, 2049), Algorithm::hierarchical);
  EXPECT_EQ(rules.choose(Collective::broadcast, 8), kBuiltIn);
  EXPECT_EQ(rules.hosts, (std::vector<std::vector<int>>{{0, 1}, {2, 3}}));
  EXPECT_EQ(text(rules), "all_reduce: binomial to 2.0 KiB, hierarchical");
  EXPECT_EQ(text(tuned.where), "mpi, 4 ranks on 2 hosts");
}

}  // namespace
}  // namespace lockstep::plan
