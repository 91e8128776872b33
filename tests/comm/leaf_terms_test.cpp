// Canonical sums over leaves: whoever holds them, the bits are those of one process.
#include <random>
#include <vector>

#include "lockstep/plan/batch_plan.h"
#include "tests/comm/on_ranks.h"

namespace lockstep {
namespace {

using test::in_heap;
using test::on_ranks;
using test::same_bits;

/// Leaf values of very different size, so that another order of additions shows.
at::Tensor leaf_value(int leaf, int64_t count, at::ScalarType type) {
  std::mt19937_64 random(1000 * leaf + 17);
  std::vector<double> values(count);
  for (double& value : values) {
    const double mantissa = static_cast<double>(random() >> 11) * 0x1p-53 - 0.5;
    value = std::ldexp(mantissa, static_cast<int>(random() % 24));
  }
  return at::tensor(values, at::kDouble).to(type);
}

/// The tree, serially, in one process.
at::Tensor tree(int lo, int hi, int64_t count, at::ScalarType type) {
  if (hi - lo == 1) return leaf_value(lo, count, type);
  const int mid = plan::split(lo, hi);
  return tree(lo, mid, count, type) + tree(mid, hi, count, type);
}

std::vector<LeafTerm> terms_of(plan::LeafRange held, int leaves, int64_t count,
                               at::ScalarType type) {
  std::vector<LeafTerm> terms;
  for (const plan::LeafRange node : plan::maximal_subtrees(leaves, held))
    terms.push_back({node, tree(node.lo, node.hi, count, type)});
  return terms;
}

TEST(LeafTerms, AllReduceHasTheBitsOfTheSerialTree) {
  on_ranks({1, 2, 3, 4}, [](ProcessGroup& group) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      for (const int leaves : {1, 2, 3, 5, 6, 8, 13}) {
        for (const int64_t count : {0, 1, 37, 4099}) {
          // Ranks beyond the leaves hold none: they bring no term.
          const int ranks = std::min(group.size(), leaves);
          plan::LeafRange held{0, 0};
          if (group.rank() < ranks)
            held = plan::plan_leaves(leaves, ranks, plan::LeafAssignment::contiguous)
                       .run_of(group.rank());
          const auto terms = terms_of(held, leaves, count, type);
          at::Tensor sum = at::full({count}, 99, type);
          group.all_reduce(terms, leaves, sum).wait();
          EXPECT_TRUE(same_bits(sum, tree(0, leaves, count, type)))
              << leaves << " leaves, " << count << " elements of " << type;
        }
      }
    }
  });
}

TEST(LeafTerms, ResultMayBeATermAndTermsComeInAnyOrder) {
  on_ranks({3}, [](ProcessGroup& group) {
    const int leaves = 8;
    const auto held =
        plan::plan_leaves(leaves, 3, plan::LeafAssignment::contiguous).run_of(group.rank());
    auto terms = terms_of(held, leaves, 2053, at::kFloat);
    std::reverse(terms.begin(), terms.end());
    for (LeafTerm& term : terms) term.value = in_heap(group, term.value);
    const at::Tensor result = terms.back().value;
    group.all_reduce(terms, leaves, result).wait();
    EXPECT_TRUE(same_bits(result, tree(0, leaves, 2053, at::kFloat)));
  });
}

TEST(LeafTerms, ReduceScatterHasTheBitsOfTheSerialTree) {
  on_ranks({1, 2, 3, 4}, [](ProcessGroup& group) {
    const int leaves = 8;
    std::vector<int64_t> counts;
    for (int r = 0; r < group.size(); ++r) counts.push_back(r == 1 ? 0 : 701 + 13 * r);
    const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    const auto held = plan::plan_leaves(leaves, group.size(), plan::LeafAssignment::contiguous)
                          .run_of(group.rank());
    at::Tensor out = at::zeros({counts[group.rank()]});
    group.reduce_scatter_uneven(terms_of(held, leaves, total, at::kFloat), leaves, out, counts)
        .wait();
    const int64_t first =
        std::accumulate(counts.begin(), counts.begin() + group.rank(), int64_t{0});
    const at::Tensor sum = tree(0, leaves, total, at::kFloat);
    EXPECT_TRUE(same_bits(out, sum.narrow(0, first, out.numel())));
  });
}

TEST(LeafTerms, AnAbsentLeafIsSkippedNotAddedAsZero) {
  on_ranks({2, 3}, [](ProcessGroup& group) {
    // Only rank 1 brings a leaf, of negative zeros: 0 + -0 would lose the sign.
    std::vector<LeafTerm> terms;
    if (group.rank() == 1) terms.push_back({{2, 3}, at::full({1500}, -0.0)});
    at::Tensor sum = at::ones({1500});
    group.all_reduce(terms, 4, sum).wait();
    EXPECT_TRUE(same_bits(sum, at::full({1500}, -0.0)));

    group.all_reduce(std::vector<LeafTerm>{}, 4, sum).wait();
    EXPECT_TRUE(same_bits(sum, at::zeros({1500}))) << "no term at all: zero";
  });
}

TEST(LeafTerms, OneTensorARankIsTheTreeOverRanks) {
  on_ranks({1, 2, 3, 4}, [](ProcessGroup& group) {
    at::Tensor x = leaf_value(group.rank(), 3001, at::kFloat);
    group.all_reduce(x).wait();
    EXPECT_TRUE(same_bits(x, tree(0, group.size(), 3001, at::kFloat)));
  });
}

}  // namespace
}  // namespace lockstep
