#include "lockstep/plan/collective_steps.h"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/plan/collective_check.h"
#include "tests/plan/collective_cases.h"
#include "tests/plan/pictures.h"
#include "tests/plan/property.h"
#include "tests/plan/tree_reference.h"

namespace lockstep::plan {
namespace {

void expect_sound(const std::string& label, const CollectivePlan& plan) {
  try {
    check(plan);
  } catch (const std::logic_error& error) {
    ADD_FAILURE() << label << ": " << error.what();
  }
}

TEST(CollectiveSteps, AllPlansHoldFor1To32Ranks) {
  for (int ranks = 1; ranks <= 32; ++ranks) {
    for (const int64_t count : {0, 1, 17, 1009}) {
      for_each_plan(ranks, count, /*chunks=*/3, /*root=*/ranks / 2, expect_sound);
    }
  }
}

TEST(CollectiveSteps, AllPlansHoldForManyRanks) {
  for (const int ranks : {61, 127, 128, 129}) {
    for_each_plan(ranks, 16 * ranks * 3 + 5, /*chunks=*/4, /*root=*/1, expect_sound);
  }
  for (const int ranks : {384, 511, 512}) {
    const int64_t count = 16 * ranks + 7;
    for (const Algorithm algorithm : plain_all_reduces()) {
      if (algorithm == Algorithm::ring && ranks != 511) continue;
      if (algorithm == Algorithm::direct && ranks != 512) continue;
      expect_sound(name_of(algorithm), plan_all_reduce(algorithm, ranks, count));
    }
    expect_sound("halving", plan_reduce_scatter(Algorithm::halving, uneven(count, ranks)));
    expect_sound("bruck", plan_all_gather(Algorithm::bruck, uneven(count, ranks)));
    expect_sound("halving", plan_all_gather(Algorithm::halving, uneven(count, ranks)));
    expect_sound("binomial", plan_reduce(Algorithm::binomial, ranks, ranks - 1, count, 5));
  }
  expect_sound("hierarchical", plan_hierarchical_all_reduce(runs_of(8, 512), 8192 + 3,
                                                            Algorithm::direct, Algorithm::halving));
}

RC_GTEST_PROP(CollectiveSteps, AllPlansHoldForAnySizes, ()) {
  const int ranks = *rc::gen::inRange(1, 20);
  const int64_t count = *rc::gen::element<int64_t>(*rc::gen::inRange<int64_t>(0, 200),
                                                   *rc::gen::inRange<int64_t>(0, int64_t{1} << 40));
  for_each_plan(ranks, count, *rc::gen::inRange(1, 9), *rc::gen::inRange(0, ranks),
                [](const std::string&, const CollectivePlan& plan) { check(plan); });
}

/// Counts for which every slice, half and chunk has elements.
int64_t ample(int ranks) { return 16 * 4 * 4 * ranks + 3; }

TEST(CollectiveSteps, CanonicalTable) {
  for (int ranks = 1; ranks <= 32; ++ranks) {
    const auto canonical = [&](Algorithm algorithm, int chunks = 1) {
      return is_canonical(plan_all_reduce(algorithm, ranks, ample(ranks), chunks));
    };
    EXPECT_TRUE(canonical(Algorithm::direct)) << ranks;
    EXPECT_TRUE(canonical(Algorithm::halving)) << ranks;
    EXPECT_TRUE(canonical(Algorithm::binomial, 3)) << ranks;
    EXPECT_EQ(canonical(Algorithm::ring), ranks <= 2) << ranks;
    EXPECT_EQ(canonical(Algorithm::tree, 3), ranks <= 3) << ranks;
    EXPECT_EQ(canonical(Algorithm::double_tree, 3), ranks <= 2) << ranks;

    const std::vector<int64_t> counts(static_cast<size_t>(ranks), 5);
    EXPECT_TRUE(is_canonical(plan_reduce_scatter(Algorithm::direct, counts))) << ranks;
    EXPECT_TRUE(is_canonical(plan_reduce_scatter(Algorithm::halving, counts))) << ranks;
    EXPECT_EQ(is_canonical(plan_reduce_scatter(Algorithm::ring, counts)), ranks <= 2) << ranks;
    for (int root = 0; root < ranks; ++root) {
      EXPECT_TRUE(is_canonical(plan_reduce(Algorithm::binomial, ranks, root, 40, 2)))
          << ranks << " to " << root;
    }
  }
  for (const int ranks : {61, 127, 128, 129, 384, 511, 512}) {
    EXPECT_TRUE(is_canonical(plan_all_reduce(Algorithm::halving, ranks, ample(ranks)))) << ranks;
    EXPECT_TRUE(is_canonical(plan_all_reduce(Algorithm::binomial, ranks, 64, 2))) << ranks;
  }
  EXPECT_TRUE(is_canonical(plan_all_reduce(Algorithm::direct, 384, ample(384))));
}

TEST(CollectiveSteps, HierarchicalIsCanonicalWhereHostsAreSubtrees) {
  for (int ranks = 1; ranks <= 32; ++ranks) {
    for (int per_host = 1; per_host <= ranks; ++per_host) {
      if (ranks % per_host != 0) continue;
      for (const auto& [inside, across] : {std::pair(Algorithm::direct, Algorithm::direct),
                                           std::pair(Algorithm::halving, Algorithm::halving)}) {
        const bool subtrees = std::has_single_bit(static_cast<unsigned>(per_host));
        EXPECT_EQ(is_canonical(plan_hierarchical_all_reduce(runs_of(per_host, ranks), ample(ranks),
                                                            inside, across)),
                  subtrees || per_host == ranks)
            << ranks << " in hosts of " << per_host;
      }
    }
  }
  // Ranks dealt out to hosts in turn: sound, not canonical.
  EXPECT_FALSE(is_canonical(plan_hierarchical_all_reduce({{0, 2}, {1, 3}}, 64)));
  EXPECT_FALSE(is_canonical(plan_hierarchical_all_reduce({{0, 3}, {2, 1}}, 64)));
  // Hosts and their members in any order, as long as they are the subtrees.
  EXPECT_TRUE(is_canonical(plan_hierarchical_all_reduce({{3, 2}, {0, 1}}, 64)));
}

// ---- the plans on numbers, by an executor that knows nothing of the checker

/// Every promise, element by element. `sum(element)`: the sum of all terms.
template <class Number, class Value, class Sum>
void expect_promises(const std::string& label, const CollectivePlan& plan, const Value& value,
                     const Sum& sum) {
  Execution<Number> execution(plan, value);
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    for (const Content& content : plan.by_rank[static_cast<size_t>(rank)].promised) {
      int64_t element = content.element;
      for (const Number number : execution.at(rank, content.place)) {
        const Number want = content.term == kSum ? sum(element) : value(content.term, element);
        ASSERT_EQ(number, want) << label << ": rank " << rank << ", element " << element;
        ++element;
      }
    }
  }
}

TEST(CollectiveSteps, MoveAndAddEveryNumber) {
  const auto value = [](int term, int64_t element) { return (term + 1) * 1000003 + element * 7; };
  for (int ranks = 1; ranks <= 13; ++ranks) {
    const auto sum = [&](int64_t element) {
      int64_t all = 0;
      for (int term = 0; term < ranks; ++term) all += value(term, element);
      return all;
    };
    for (const int64_t count : {0, 1, 131, 700}) {
      for_each_plan(ranks, count, /*chunks=*/3, /*root=*/ranks - 1,
                    [&](const std::string& label, const CollectivePlan& plan) {
                      expect_promises<int64_t>(label, plan, value, sum);
                    });
    }
  }
}

TEST(CollectiveSteps, CanonicalPlansGiveTheBitsOfTheSumTree) {
  constexpr int64_t kCount = 331;
  int canonical = 0;
  for (int ranks = 1; ranks <= 17; ++ranks) {
    const auto numbers = unlike_values<float>(static_cast<size_t>(ranks * kCount), 7);
    const auto value = [&](int term, int64_t element) {
      return numbers[static_cast<size_t>(term * kCount + element)];
    };
    const auto sum = [&](int64_t element) {
      std::vector<float> leaves;
      for (int term = 0; term < ranks; ++term) leaves.push_back(value(term, element));
      return reference_sum(leaves, 0, ranks);
    };
    for_each_all_reduce(ranks, kCount, 3,
                        [&](const std::string& label, const CollectivePlan& plan) {
                          if (!is_canonical(plan)) return;
                          ++canonical;
                          expect_promises<float>(label, plan, value, sum);
                        });
  }
  EXPECT_GT(canonical, 150);
}

// ---- terms by leaf

RC_GTEST_PROP(DirectPlan, SumsAnyTermsInTheOrderOfTheTree, ()) {
  const int leaves = *rc::gen::inRange(1, 40);
  const int ranks = *rc::gen::inRange(1, 9);
  std::vector<std::vector<LeafRange>> terms(static_cast<size_t>(ranks));
  int held = 0;
  for (int lo = 0; lo < leaves;) {
    const int hi = std::min(leaves, lo + *rc::gen::inRange(1, 9));
    const auto rank = static_cast<size_t>(*rc::gen::inRange(0, ranks));
    const bool absent = *rc::gen::inRange(0, 5) == 0;
    for (const LeafRange& term : maximal_subtrees(leaves, {lo, hi})) {
      if (!absent) terms[rank].push_back(term), ++held;
    }
    lo = hi;
  }
  RC_PRE(held > 0);
  const SumPlan sum = plan_sum(leaves, terms);
  const auto count = *rc::gen::inRange<int64_t>(0, 500);
  RC_ASSERT(is_canonical(plan_all_reduce(sum, count)));
  RC_ASSERT(is_canonical(plan_reduce_scatter(sum, uneven(count, ranks))));
}

TEST(DirectPlan, OfOneTermARankIsTheDirectAllReduce) {
  std::vector<std::vector<LeafRange>> terms;
  for (int rank = 0; rank < 7; ++rank) terms.push_back({{rank, rank + 1}});
  EXPECT_EQ(to_text(plan_all_reduce(plan_sum(7, terms), 1000)),
            to_text(plan_all_reduce(Algorithm::direct, 7, 1000)));
}

TEST(DirectPlan, TermsOfARankThatHasSeveralAreBuffersOfTheirOwn) {
  const CollectivePlan plan = plan_all_reduce(plan_sum(3, {{{0, 1}, {2, 3}}, {{1, 2}}}), 20);
  EXPECT_EQ(to_text(plan),
            "round 0: rank 0 sends term 0 [16,20) to 1, term 1 [16,20) to 1; receives scratch "
            "[0,16) from 1\n"
            "         rank 0 sets [0,16) = (term 0 [0,16) + scratch [0,16)) + term 1 [0,16)\n"
            "         rank 1 sends [0,16) to 0; receives scratch [0,4) from 0, scratch [4,8) from "
            "0\n"
            "         rank 1 sets [16,20) = (scratch [0,4) + [16,20)) + scratch [4,8)\n"
            "round 1: rank 0 sends [0,16) to 1; receives [16,20) from 1\n"
            "         rank 1 sends [16,20) to 0; receives [0,16) from 0\n");
  EXPECT_THROW(plan_all_reduce(plan_sum(3, {{}, {}}), 20), UsageError);
}

// ---- scratch, text, names, refusals

int64_t largest_scratch(const CollectivePlan& plan) {
  int64_t largest = 0;
  for (const RankSteps& steps : plan.by_rank) largest = std::max(largest, steps.scratch);
  return largest;
}

TEST(CollectiveSteps, ScratchIsBounded) {
  for (int ranks = 2; ranks <= 32; ++ranks) {
    for (const int64_t count : {17, 1009, 16 * 12 * 32}) {
      const int64_t slice = slice_of(count, ranks, 0).size();
      const auto scratch = [&](Algorithm algorithm, int chunks = 1) {
        return largest_scratch(plan_all_reduce(algorithm, ranks, count, chunks));
      };
      EXPECT_LE(scratch(Algorithm::direct), (ranks - 1) * slice);
      EXPECT_LE(scratch(Algorithm::ring), slice);
      EXPECT_LE(scratch(Algorithm::halving), count / 2 + 16);
      EXPECT_LE(scratch(Algorithm::tree, 4), 2 * slice_of(count, 4, 0).size());
      EXPECT_LE(scratch(Algorithm::double_tree, 4), 2 * (slice_of(count, 8, 0).size() + 16));
      EXPECT_LE(scratch(Algorithm::binomial), count);
      EXPECT_LE(scratch(Algorithm::binomial, 4), 4 * slice_of(count, 4, 0).size());
    }
  }
}

TEST(CollectiveSteps, NobodyIsAnInnerNodeOfBothTrees) {
  for (int ranks = 2; ranks <= 64; ++ranks) {
    const int64_t count = 16 * 2;  // one unit a tree
    const CollectivePlan plan = plan_all_reduce(Algorithm::double_tree, ranks, count);
    for (const RankSteps& steps : plan.by_rank) {
      size_t sums = 0;
      for (const CollectiveRound& round : steps.rounds) sums += round.local.size();
      EXPECT_LE(sums, 1u) << ranks;
    }
  }
}

TEST(CollectiveSteps, ReadAsText) {
  EXPECT_EQ(to_text(plan_all_reduce(Algorithm::ring, 2, 32)),
            "round 0: rank 0 sends [16,32) to 1; receives scratch [0,16) from 1\n"
            "         rank 0 sets [0,16) = scratch [0,16) + [0,16)\n"
            "         rank 1 sends [0,16) to 0; receives scratch [0,16) from 0\n"
            "         rank 1 sets [16,32) = scratch [0,16) + [16,32)\n"
            "round 1: rank 0 sends [0,16) to 1; receives [16,32) from 1\n"
            "         rank 1 sends [16,32) to 0; receives [0,16) from 0\n");
  EXPECT_EQ(to_text(plan_all_to_all(Algorithm::pairwise, {{1, 2}, {0, 3}})),
            "round 0: rank 0 sends term 0 [1,3) to 1\n"
            "         rank 0 sets [0,1) = term 0 [0,1)\n"
            "         rank 1 receives [0,2) from 0\n"
            "         rank 1 sets [2,5) = term 0 [0,3)\n");
  EXPECT_EQ(to_text(plan_all_reduce(Algorithm::direct, 1, 32)), "");
  // Operands in the order of leaves, to whichever root.
  EXPECT_EQ(to_text(plan_reduce(Algorithm::binomial, 2, 1, 4)),
            "round 0: rank 0 sends [0,4) to 1\n"
            "         rank 1 receives scratch [0,4) from 0\n"
            "         rank 1 sets [0,4) = scratch [0,4) + [0,4)\n");
}

TEST(CollectiveSteps, PicturesInTheDocumentArePlans) {
  const std::string page = "collective_algorithms.md";
  for (const Algorithm algorithm : plain_all_reduces()) {
    if (algorithm == Algorithm::tree) continue;
    expect_picture(page, plan_all_reduce(algorithm, 4, 64));
  }
  expect_picture(page, plan_hierarchical_all_reduce(runs_of(4, 8), 128), 128);
  expect_picture("same_bits.md", plan_all_reduce(Algorithm::direct, 6, 96), 96);
  expect_picture(page, plan_all_gather(Algorithm::bruck, {16, 16, 16, 16}));
  for (const Algorithm algorithm : algorithms_of(Collective::all_to_all)) {
    expect_picture(page, plan_all_to_all(algorithm, equal_splits(4, 16)));
  }
}

TEST(CollectiveSteps, AlgorithmsHaveNames) {
  std::vector<Algorithm> seen;
  for (const Collective operation :
       {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
        Collective::broadcast, Collective::reduce, Collective::all_to_all}) {
    EXPECT_FALSE(name_of(operation).empty());
    for (const Algorithm algorithm : algorithms_of(operation)) {
      EXPECT_EQ(parse_algorithm(name_of(algorithm)), algorithm);
      seen.push_back(algorithm);
    }
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()) - seen.begin(), 10);
  EXPECT_EQ(name_of(Algorithm::scatter_all_gather), "scatter_all_gather");
}

template <class Make>
std::string refusal(const Make& make) {
  try {
    make();
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(CollectiveSteps, RefusalsSayWhatFits) {
  EXPECT_EQ(refusal([] { parse_algorithm("halvign"); }),
            "there is no algorithm \"halvign\".\n  Did you mean \"halving\"? Algorithms: direct, "
            "ring, halving, binomial, tree, double_tree, hierarchical, bruck, scatter_all_gather "
            "and pairwise.");
  EXPECT_EQ(refusal([] {
              plan_reduce_scatter(Algorithm::tree, {1, 2});
            }),
            "reduce_scatter has no algorithm \"tree\".\n  Its algorithms: direct, ring and "
            "halving.");
  EXPECT_EQ(refusal([] { plan_all_reduce(Algorithm::ring, 2, 32, 4); }),
            "4 chunks: \"ring\" has no pipeline that they could follow each other in.\n  Use 1 "
            "chunk, or binomial, tree or double_tree.");
  EXPECT_THROW(plan_all_reduce(Algorithm::tree, 2, 32, 0), UsageError);
  EXPECT_THROW(plan_all_reduce(Algorithm::hierarchical, 4, 32), UsageError);
  EXPECT_THROW(plan_all_reduce(Algorithm::direct, 0, 32), UsageError);
  EXPECT_THROW(plan_all_reduce(Algorithm::direct, 2, -1), UsageError);
  EXPECT_THROW(plan_all_gather(Algorithm::direct, {3, -1}), UsageError);
  EXPECT_THROW(plan_broadcast(Algorithm::direct, 2, 2, 8), UsageError);
  EXPECT_THROW(plan_broadcast(Algorithm::direct, 2, 0, -8), UsageError);
  EXPECT_THROW(plan_reduce(Algorithm::binomial, 2, -1, 8), UsageError);
  EXPECT_EQ(refusal([] {
              plan_all_to_all(Algorithm::bruck, {{1, 1}, {2, 1}});
            }),
            "all_to_all: bruck moves equal splits; rank 0 keeps 1 elements, but rank 1 sends 2 to "
            "rank 0.\n  Use direct or pairwise.");
  EXPECT_THROW(plan_all_to_all(Algorithm::pairwise, {{1, 1}, {2}}), UsageError);
  EXPECT_THROW(plan_all_to_all(Algorithm::pairwise, {}), UsageError);
}

TEST(CollectiveSteps, HostsMustBeAlikeAndNameEachRankOnce) {
  EXPECT_EQ(refusal([] {
              plan_hierarchical_all_reduce({{0, 1}, {2}}, 32);
            }),
            "hierarchical all_reduce: a host has 2 ranks and another 1.\n  Every host needs as "
            "many; otherwise use direct or halving.");
  EXPECT_EQ(refusal([] {
              plan_hierarchical_all_reduce({{0, 1}, {1, 2}}, 32);
            }),
            "hierarchical all_reduce: rank 1 is named twice or is none of the 4.\n  The hosts "
            "together name ranks 0 to 3 once each.");
  EXPECT_THROW(plan_hierarchical_all_reduce({{0, 4}, {1, 2}}, 32), UsageError);
  EXPECT_THROW(plan_hierarchical_all_reduce({}, 32), UsageError);
  EXPECT_THROW(plan_hierarchical_all_reduce({{}}, 32), UsageError);
  EXPECT_EQ(refusal([] { plan_hierarchical_all_reduce({{0}}, 32, Algorithm::ring); }),
            "hierarchical all_reduce: \"ring\" is no part of it.\n  Its parts can be direct or "
            "halving.");
}

}  // namespace
}  // namespace lockstep::plan
