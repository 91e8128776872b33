#include "lockstep/plan/shard_layout.h"

#include <algorithm>
#include <map>
#include <set>

#include "lockstep/plan/norm_chunks.h"
#include "lockstep/plan/norm_plan.h"
#include "tests/plan/property.h"
#include "tests/plan/tree_reference.h"

namespace lockstep::plan {
namespace {

ParamDeclaration param(const std::string& name, std::vector<int64_t> shape, bool trainable = true) {
  return {.name = name, .shape = std::move(shape), .trainable = trainable, .init = {}};
}

/// A model with a root, three layers with an empty and a one-element parameter, and frozen ones.
ParamTable table_of_layers(bool frozen = true) {
  std::vector<ParamDeclaration> declared = {param("wte.weight", {40, 13})};
  for (const char* layer : {"h.0", "h.1", "h.10"}) {
    const std::string at = layer;
    declared.push_back(param(at + ".norm", {13}));
    declared.push_back(param(at + ".fc", {13, 101}));
    declared.push_back(param(at + ".none", {0, 4}));
    declared.push_back(param(at + ".scale", {}));
    if (frozen) declared.push_back(param(at + ".fixed", {7, 100}, /*trainable=*/false));
  }
  if (frozen) declared.push_back(param("h.2.only_fixed", {300}, /*trainable=*/false));
  declared.push_back(param("ln.weight", {13}));
  return make_param_table(declared, {});
}

ShardLayout layout_of(const ParamTable& table, const ShardOptions& options) {
  const BucketPlan buckets = options.stage == Shard::zero3 ? plan_unit_buckets(table)
                                                           : plan_buckets(table, 1 << 10, 1 << 12);
  return plan_shards(table, buckets, options);
}

TEST(ShardLayout, AUnitIsALayerOfAList) {
  EXPECT_EQ(unit_of("h.3.attn.c_attn.weight"), "h.3");
  EXPECT_EQ(unit_of("0.weight"), "0");
  EXPECT_EQ(unit_of("encoder.layers.11"), "encoder.layers.11");
  EXPECT_EQ(unit_of("wte.weight"), "");
  EXPECT_EQ(unit_of("fc1.weight"), "");
  EXPECT_EQ(unit_of(""), "");
  const ShardLayout layout = layout_of(table_of_layers(), {.stage = Shard::zero3, .ranks = 2});
  std::vector<std::string> names;
  for (const int unit : layout.forward) {
    names.push_back(layout.units[static_cast<size_t>(unit)].name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"", "h.0", "h.1", "h.10", "h.2"}));
  EXPECT_EQ(layout.root(), layout.forward[0]);
}

TEST(ShardLayout, AUnitCanBeGiven) {
  ParamTable table =
      make_param_table({param("h.0.w", {300}), param("h.1.w", {300}), param("head", {9})}, {});
  table.params[1].unit = "h.0";
  table.params[2].unit = "end";
  const ShardLayout layout = layout_of(table, {.stage = Shard::zero3, .ranks = 2});
  EXPECT_EQ(layout.units.size(), 2u);
  EXPECT_EQ(layout.slots[0].unit, layout.slots[1].unit);
  EXPECT_EQ(layout.units[static_cast<size_t>(layout.slots[2].unit)].name, "end");
  EXPECT_EQ(layout.root(), -1);
}

TEST(ShardLayout, AParameterUsedInTwoUnitsIsOfTheRoot) {
  const ParamTable table = make_param_table(
      {param("h.0.w", {300}), param("h.1.w", {300}), param("h.1.b", {9})}, {{"h.1.w", "h.0.w"}});
  const ShardLayout layout = layout_of(table, {.stage = Shard::zero3, .ranks = 2});
  EXPECT_EQ(layout.slots[0].unit, layout.root());
  EXPECT_GE(layout.root(), 0);
}

/// Every element of every parameter once; pieces begin on chunks; shares differ by two chunks.
void expect_covers(const ParamTable& table, const ShardLayout& layout) {
  std::vector<std::map<int64_t, int64_t>> covered(table.params.size());
  for (const bool trained : {true, false}) {
    for (int rank = 0; rank < layout.options.ranks; ++rank) {
      for (const Piece& piece : layout.pieces(rank, trained)) {
        ASSERT_EQ(piece.lo % kNormChunk, 0);
        ASSERT_LT(piece.lo, piece.hi);
        ASSERT_EQ(table.params[static_cast<size_t>(piece.param)].trainable, trained);
        ASSERT_TRUE(covered[static_cast<size_t>(piece.param)].emplace(piece.lo, piece.hi).second);
        const ElementRange own = layout.owned(piece.unit, rank, trained);
        ASSERT_LE(own.lo, piece.in_unit);
        ASSERT_LE(piece.in_unit + piece.size(), own.hi);
      }
    }
  }
  for (size_t p = 0; p < table.params.size(); ++p) {
    if (layout.slots[p].unit < 0) continue;
    int64_t next = 0;
    for (const auto& [lo, hi] : covered[p]) {
      ASSERT_EQ(lo, next) << table.params[p].name;
      next = hi;
    }
    ASSERT_EQ(next, table.params[p].numel) << table.params[p].name;
  }
  for (size_t u = 0; u < layout.units.size(); ++u) {
    const std::vector<int64_t> counts = layout.counts(static_cast<int>(u));
    const double even = static_cast<double>(layout.units[u].trained) / layout.options.ranks;
    for (const int64_t count : counts) {
      ASSERT_LE(std::abs(static_cast<double>(count) - even), kNormChunk + kSlotAlignment);
    }
  }
}

TEST(ShardLayout, CoversEveryElementOnceOnEveryWorld) {
  for (const Shard stage : {Shard::zero1, Shard::zero2, Shard::zero3}) {
    for (const int ranks : {1, 2, 3, 4, 5, 7, 8, 16, 100, 512}) {
      const ParamTable table = table_of_layers();
      expect_covers(table, layout_of(table, {.stage = stage, .ranks = ranks}));
    }
  }
}

RC_GTEST_PROP(ShardLayout, CoversParametersOfAnySizes, ()) {
  const auto sizes = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 2000));
  std::vector<ParamDeclaration> declared;
  for (size_t i = 0; i < sizes.size(); ++i) {
    declared.push_back(param("h." + std::to_string(i / 3) + ".p" + std::to_string(i), {sizes[i]},
                             *rc::gen::inRange(0, 4) > 0));
  }
  const ParamTable table = make_param_table(declared, {});
  expect_covers(table, layout_of(table, {.stage = Shard::zero3, .ranks = *rc::gen::inRange(1, 9)}));
}

TEST(ShardLayout, NothingShardedIsOwnedByEveryRank) {
  const ParamTable table = table_of_layers();
  const ShardLayout layout = layout_of(table, {});
  int64_t numel = 0;
  for (const Piece& piece : layout.pieces(0)) numel += piece.size();
  int64_t trained = 0;
  for (const Param& p : table.params) trained += p.trainable ? p.numel : 0;
  EXPECT_EQ(numel, trained);
  EXPECT_TRUE(forward_units(layout, true).empty());
}

/// Units gathered at once besides the root, at most; fails if a unit is touched that is not there.
int most_gathered(const ShardLayout& layout, const std::vector<std::vector<UnitStep>>& passes) {
  std::set<int> alive;
  int most = 0;
  for (const auto& pass : passes) {
    std::set<int> touched;
    for (size_t i = 0; i < pass.size(); ++i) {
      const UnitStep& step = pass[i];
      if (step.op == UnitStep::Op::gather) {
        EXPECT_TRUE(alive.insert(step.unit).second) << "gathered twice";
      } else if (step.op == UnitStep::Op::release) {
        EXPECT_EQ(alive.erase(step.unit), 1u) << "freed without being gathered";
      } else {
        touched.insert(step.unit);
        // What a touch brings about ends before the next touch.
        bool comes = alive.contains(step.unit);
        for (size_t j = i + 1; j < pass.size() && pass[j].op != UnitStep::Op::touch; ++j) {
          comes |= pass[j] == UnitStep{UnitStep::Op::gather, step.unit};
        }
        EXPECT_TRUE(comes) << "touched and not there";
      }
      most =
          std::max(most, static_cast<int>(alive.size()) - (alive.contains(layout.root()) ? 1 : 0));
    }
    for (const int unit : layout.forward) {
      EXPECT_TRUE(unit == layout.root() || touched.contains(unit));
    }
  }
  EXPECT_TRUE(alive.empty()) << "something stays gathered";
  return most;
}

TEST(ShardLayout, NeverMoreThanDepthPlusOneUnitsAreGathered) {
  for (const bool with_root : {true, false}) {
    std::vector<ParamDeclaration> declared;
    if (with_root) declared.push_back(param("wte", {100}));
    for (int layer = 0; layer < 8; ++layer) {
      declared.push_back(param("h." + std::to_string(layer) + ".w", {1000}));
    }
    const ParamTable table = make_param_table(declared, {});
    for (const Reshard reshard : {Reshard::automatic, Reshard::always, Reshard::never}) {
      for (int depth = 0; depth < 5; ++depth) {
        const ShardLayout layout = layout_of(
            table, {.stage = Shard::zero3, .ranks = 2, .prefetch = depth, .reshard = reshard});
        const int most =
            most_gathered(layout, {forward_units(layout, true), backward_units(layout)});
        EXPECT_EQ(most, reshard == Reshard::never ? 8 : depth + 1);
        EXPECT_EQ(most_gathered(layout, {forward_units(layout, false)}), depth + 1);
      }
    }
  }
}

/// The norm of whoever owns what has the bits of one rank's.
TEST(NormPlan, HasTheBitsOfTheTreeOnEveryWorld) {
  const ParamTable table = table_of_layers();
  const NormChunks chunks = plan_norm_chunks(table);
  const auto squares = unlike_values<double>(static_cast<size_t>(chunks.chunks), 3);
  const double alone = tree_sum(squares.data(), chunks.chunks);
  for (const Shard stage : {Shard::zero1, Shard::zero3}) {
    for (const int ranks : {1, 2, 3, 4, 5, 8, 13, 64}) {
      const NormPlan plan = plan_norm(table, layout_of(table, {.stage = stage, .ranks = ranks}));
      std::vector<double> sums(plan.place.size());
      size_t index = 0;
      for (const auto& nodes : plan.nodes) {
        for (const LeafRange node : nodes) {
          sums[static_cast<size_t>(plan.place[index++])] =
              tree_sum(squares.data() + node.lo, node.size());
        }
      }
      for (const AddStep step : plan.additions) {
        sums[static_cast<size_t>(step.into)] += sums[static_cast<size_t>(step.from)];
      }
      EXPECT_EQ(bits(sums.at(0)), bits(alone)) << ranks << " ranks";
    }
  }
}

/// Three tensor grains of a parameter, among others, one of them without elements.
ParamTable table_of_grains() {
  std::vector<ParamDeclaration> declared = {param("wte", {1000, 3}), param("a.bias", {7})};
  for (int grain = 0; grain < 3; ++grain) {
    ParamDeclaration part = param("a.weight@" + std::to_string(grain), {300, 5});
    part.slice = {.logical = "a.weight",
                  .shape = {900, 5},
                  .dim = 0,
                  .blocks = {900},
                  .grain = grain,
                  .grains = 3};
    declared.push_back(part);
  }
  declared.push_back(param("b", {0}));
  declared.push_back(param("c", {257}));
  return make_param_table(declared, {});
}

/// A trust ratio's norm of whoever owns what: a tree for each logical parameter.
TEST(NormPlan, EachParameterHasTheBitsOfItsTreeOnEveryWorld) {
  const ParamTable table = table_of_grains();
  const NormChunks chunks = plan_norm_chunks(table, NormSums::by_parameter);
  // a.bias 1, a.weight 3 x 6, b none, c 2, wte 12.
  EXPECT_EQ(chunks.ends, (std::vector<int64_t>{1, 19, 19, 21, 33}));
  EXPECT_EQ(chunks.sum[static_cast<size_t>(table.find("a.weight@2"))], 1);
  const auto squares = unlike_values<double>(static_cast<size_t>(chunks.chunks), 4);
  for (const Shard stage : {Shard::zero1, Shard::zero3}) {
    for (const int ranks : {1, 2, 3, 4, 5, 8, 13, 64}) {
      const NormPlan plan = plan_norm(table, layout_of(table, {.stage = stage, .ranks = ranks}),
                                      NormSums::by_parameter);
      std::vector<double> sums(plan.place.size());
      size_t index = 0;
      for (const auto& nodes : plan.nodes) {
        for (const LeafRange node : nodes) {
          sums[static_cast<size_t>(plan.place[index++])] =
              tree_sum(squares.data() + node.lo, node.size());
        }
      }
      for (const AddStep step : plan.additions) {
        sums[static_cast<size_t>(step.into)] += sums[static_cast<size_t>(step.from)];
      }
      ASSERT_EQ(plan.results.size(), chunks.ends.size());
      EXPECT_EQ(plan.results[2], -1) << "no element, no sum";
      for (const size_t sum : {0, 1, 3, 4}) {
        const int64_t first = chunks.begin_of(sum);
        const double alone = tree_sum(squares.data() + first, chunks.ends[sum] - first);
        EXPECT_EQ(bits(sums.at(static_cast<size_t>(plan.results[sum]))), bits(alone))
            << ranks << " ranks, sum " << sum;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::plan
