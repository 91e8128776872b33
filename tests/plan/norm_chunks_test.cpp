#include "lockstep/plan/norm_chunks.h"

#include "tests/plan/property.h"
#include "tests/plan/tree_reference.h"

namespace lockstep::plan {
namespace {

TEST(NormChunks, AreNumberedByNameWhateverTheTreeOrder) {
  ParamDeclaration z{.name = "z", .shape = {257}, .trainable = true, .init = {}};
  ParamDeclaration frozen{.name = "f", .shape = {1000}, .trainable = false, .init = {}};
  ParamDeclaration empty{.name = "e", .shape = {0}, .trainable = true, .init = {}};
  ParamDeclaration a{.name = "a", .shape = {2, 256}, .trainable = true, .init = {}};
  ParamDeclaration m{.name = "m", .shape = {1}, .trainable = true, .init = {}};
  const NormChunks plan = plan_norm_chunks(make_param_table({z, frozen, empty, a, m}, {}));
  EXPECT_EQ(plan.first_chunk, (std::vector<int64_t>{3, -1, 2, 0, 2}));
  EXPECT_EQ(plan.chunks, 2 + 0 + 1 + 2);
}

TEST(TreeSum, HasTheBitsOfTheTree) {
  for (int count = 1; count <= 300; ++count) {
    const auto values =
        unlike_values<double>(static_cast<size_t>(count), static_cast<unsigned>(count));
    ASSERT_EQ(bits(tree_sum(values.data(), count)), bits(reference_sum(values, 0, count))) << count;
  }
  for (const int count : {1000, 4095, 4096, 4097, 100'003}) {
    const auto values =
        unlike_values<double>(static_cast<size_t>(count), static_cast<unsigned>(count));
    ASSERT_EQ(bits(tree_sum(values.data(), count)), bits(reference_sum(values, 0, count))) << count;
  }
}

TEST(TreeSum, OfNothingIsZeroAndOfOneIsACopy) {
  EXPECT_EQ(bits(tree_sum(nullptr, 0)), bits(0.0));
  const double minus_zero = -0.0;
  EXPECT_EQ(bits(tree_sum(&minus_zero, 1)), bits(-0.0));
}

}  // namespace
}  // namespace lockstep::plan
