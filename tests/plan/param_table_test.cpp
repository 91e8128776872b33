#include "lockstep/plan/param_table.h"

#include "lockstep/base/error.h"
#include "tests/plan/property.h"

namespace lockstep::plan {
namespace {

ParamDeclaration declared(std::string name, std::vector<int64_t> shape) {
  ParamDeclaration declaration;
  declaration.name = std::move(name);
  declaration.shape = std::move(shape);
  return declaration;
}

std::string refusal(const std::vector<ParamDeclaration>& params, const std::vector<Tie>& ties) {
  try {
    make_param_table(params, ties);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ParamTable, KeepsTreeOrderAndSortsByName) {
  const ParamTable table = make_param_table(
      {declared("wte", {5, 3}), declared("blocks.10.bias", {3}), declared("blocks.2.bias", {3}),
       declared("scale", {}), declared("empty", {0, 4})},
      {});
  ASSERT_EQ(table.params.size(), 5u);
  EXPECT_EQ(table.params[0].name, "wte");
  EXPECT_EQ(table.by_name, (std::vector<int>{1, 2, 4, 3, 0}));
  EXPECT_EQ(table.params[3].numel, 1) << "no dimension: one element";
  EXPECT_EQ(table.params[4].numel, 0);
  EXPECT_EQ(table.numel(), 15 + 3 + 3 + 1);
  EXPECT_EQ(table.find("blocks.2.bias"), 2);
  EXPECT_EQ(table.find("blocks.1.bias"), -1);
  EXPECT_EQ(table.find(""), -1);
  EXPECT_EQ(table.find("zzz"), -1);
}

TEST(ParamTable, DecaysMatricesOnly) {
  const ParamTable table =
      make_param_table({declared("w", {2, 2}), declared("b", {2}), declared("s", {})}, {});
  EXPECT_TRUE(table.params[0].decay);
  EXPECT_FALSE(table.params[1].decay);
  EXPECT_FALSE(table.params[2].decay);
}

TEST(ParamTable, ATiedWeightIsOneParameterWithItsUsesInNameOrder) {
  const ParamTable table = make_param_table({declared("wte", {5, 3}), declared("middle", {5, 3}),
                                             declared("head", {5, 3}), declared("bias", {3})},
                                            {{"middle", "wte"}, {"head", "wte"}});
  ASSERT_EQ(table.params.size(), 2u);
  EXPECT_EQ(table.params[0].uses, (std::vector<std::string>{"head", "middle", "wte"}));
  EXPECT_EQ(table.params[1].uses, (std::vector<std::string>{"bias"}));
  EXPECT_EQ(table.numel(), 18);
  EXPECT_EQ(table.find("head"), -1);
}

TEST(ParamTable, RefusesWhatIsNoTable) {
  EXPECT_EQ(refusal({declared("w", {1}), declared("w", {1})}, {}),
            "two parameters are named \"w\".\n  Give each its own name in the module tree.");
  EXPECT_EQ(
      refusal({declared("head", {5, 3}), declared("wte.weight", {5, 3})}, {{"head", "wte.wieght"}}),
      "cannot tie \"head\" to \"wte.wieght\": there is no parameter \"wte.wieght\".\n"
      "  Did you mean \"wte.weight\"?");
  EXPECT_EQ(refusal({declared("a", {2}), declared("b", {2}), declared("c", {2})},
                    {{"a", "b"}, {"b", "c"}}),
            "cannot tie \"a\" to \"b\", which is itself tied.\n  Tie it to \"c\".");
  EXPECT_EQ(refusal({declared("a", {2}), declared("b", {2}), declared("c", {2})},
                    {{"a", "b"}, {"a", "c"}}),
            "cannot tie \"a\" to \"c\": it is already tied to \"b\".");
  EXPECT_EQ(refusal({declared("head", {5, 3}), declared("wte", {3, 5})}, {{"head", "wte"}}),
            "cannot tie \"head\" [5, 3] to \"wte\" [3, 5]: a tied weight has one shape.");
  EXPECT_EQ(refusal({declared("a", {2})}, {{"a", "a"}}), "cannot tie \"a\" to itself.");
  EXPECT_NE(refusal({declared("a", {2, -1})}, {}), "accepted");
  EXPECT_NE(refusal({declared("a", {int64_t{1} << 40, int64_t{1} << 40})}, {}), "accepted");

  ParamDeclaration frozen = declared("b", {2});
  frozen.trainable = false;
  EXPECT_EQ(refusal({declared("a", {2}), frozen}, {{"a", "b"}}),
            "cannot tie \"a\" to \"b\": one is trained and the other frozen.");
}

}  // namespace
}  // namespace lockstep::plan
