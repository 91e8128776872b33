#include "lockstep/report/run_difference.h"

#include <gtest/gtest.h>

namespace lockstep::report {
namespace {

using files::StepWitness;
using files::WitnessPiece;

// A model of wte (7 rows in 2 grains of 4, one of padding), h.0.w and h.1.w.
plan::ParamDeclaration grain(int which) {
  return {
      .name = "wte.g" + std::to_string(which),
      .shape = {4, 2},
      .init = {},
      .slice = {
          .logical = "wte", .shape = {7, 2}, .dim = 0, .blocks = {8}, .grain = which, .grains = 2}};
}

StepWitness rank_with(int rank, int64_t step, const std::vector<plan::ParamDeclaration>& params) {
  StepWitness made{.rank = rank,
                   .step = step,
                   .loss = 3.5,
                   .grad_norm = 1.25,
                   .table = plan::make_param_table(params, {}),
                   .digests = {},
                   .pieces = {}};
  for (const char* kind : {"gradient", "moment1", "moment2", "parameter"}) {
    for (int p = 0; p < std::ssize(made.table.params); ++p) {
      const plan::Param& param = made.table.params[static_cast<size_t>(p)];
      WitnessPiece piece{.kind = kind, .param = p, .lo = 0, .hi = param.numel, .values = {}};
      piece.values.resize(static_cast<size_t>(param.numel), -99);  // padding: nobody looks
      for (const plan::LogicalRun& run : plan::logical_runs(param, 0, param.numel)) {
        for (int64_t i = 0; run.first >= 0 && i < run.size(); ++i) {
          piece.values[static_cast<size_t>(run.lo + i)] =
              static_cast<float>(run.first + i + step) + 0.5f;
        }
      }
      made.pieces.push_back(std::move(piece));
    }
  }
  return made;
}

plan::ParamDeclaration layer(int which) {
  return {.name = "h." + std::to_string(which) + ".w", .shape = {3}, .init = {}};
}

void add_activation(StepWitness& to, const std::string& layer, float value = 1) {
  plan::Digest digest;
  digest.add(layer, 0, &value, 1);
  to.digests.push_back({"activation", layer, 0, 0, digest});
}

/// Of elements lo <= i < hi of the logical tensor.
void add_leaf_gradient(StepWitness& to, int64_t lo, int64_t hi) {
  plan::Digest digest;
  for (int64_t i = lo; i < hi; ++i) {
    const auto value = static_cast<float>(i);
    digest.add("wte", i, &value, 1);
  }
  to.digests.push_back({"leaf-gradient", "wte", 0, -1, digest});
}

/// Two tensor ranks, of which the first speaks for activations.
std::vector<StepWitness> by_tensor(int64_t step) {
  std::vector<StepWitness> ranks = {rank_with(0, step, {grain(0), layer(0), layer(1)}),
                                    rank_with(1, step, {grain(1), layer(0), layer(1)})};
  for (const char* name : {"h.0", "h.1"}) add_activation(ranks[0], name);
  add_leaf_gradient(ranks[0], 0, 8);
  add_leaf_gradient(ranks[1], 8, 14);
  return ranks;
}

/// Two stages; the later one is rank 0, so that ranks are not in the order of layers.
std::vector<StepWitness> by_stage(int64_t step) {
  std::vector<StepWitness> ranks = {rank_with(0, step, {layer(1)}),
                                    rank_with(1, step, {grain(0), grain(1), layer(0)})};
  add_activation(ranks[0], "h.1");
  add_activation(ranks[1], "h.0");
  add_leaf_gradient(ranks[1], 0, 14);
  return ranks;
}

template <class Make>
std::vector<StepWitness> run_of(Make make, int64_t first, int64_t last) {
  std::vector<StepWitness> all;
  for (int64_t step = first; step <= last; ++step) {
    for (StepWitness& witness : make(step - 1)) all.push_back(std::move(witness));
  }
  return all;
}

float& element(StepWitness& of, const std::string& kind, size_t param, size_t index) {
  for (WitnessPiece& piece : of.pieces) {
    if (piece.kind == kind && piece.param == static_cast<int>(param)) return piece.values[index];
  }
  ADD_FAILURE() << "no " << kind;
  return of.pieces.front().values.front();
}

TEST(RunDifference, LayoutsOfOtherCutsAreEqual) {
  const RunComparison found =
      compare_runs(run_of(by_tensor, 3, 5), run_of(by_stage, 3, 5), 3, 5, 2);
  EXPECT_FALSE(found.difference) << text_of(found.difference->first);
  EXPECT_TRUE(found.missing.empty()) << found.missing.front();
  EXPECT_EQ(found.equal_steps, 3);
}

TEST(RunDifference, NamesStepTensorElementAndBothValues) {
  std::vector<StepWitness> b = run_of(by_stage, 3, 5);
  element(b[3], "moment2", 0, 2) = 7;  // of rank 1, step 4: wte, grain 0
  const RunComparison found = compare_runs(run_of(by_tensor, 3, 5), b, 3, 5, 2);
  ASSERT_TRUE(found.difference);
  EXPECT_EQ(found.equal_steps, 1);
  EXPECT_EQ(text_of(found.difference->first, "in B"),
            "step 4: moment2 of wte on rank 0: element 2 is 5.5, in B 7");
  EXPECT_FALSE(found.difference->rank_is_of_b);
  EXPECT_FALSE(found.difference->element);
}

TEST(RunDifference, ARankThatDriftedFromItsPeersIsFoundOnEitherSide) {
  for (const bool drifted_in_a : {true, false}) {
    std::vector<StepWitness> good = run_of(by_stage, 1, 1);
    std::vector<StepWitness> drifted = run_of(by_tensor, 1, 1);
    element(drifted[1], "parameter", 2, 0) = 9;  // h.1.w of rank 1; that of rank 0 is right
    const RunComparison found =
        drifted_in_a ? compare_runs(drifted, good, 1, 1, 2) : compare_runs(good, drifted, 1, 1, 2);
    ASSERT_TRUE(found.difference);
    EXPECT_EQ(found.difference->first.rank, 1);
    EXPECT_EQ(found.difference->rank_is_of_b, !drifted_in_a);
    EXPECT_EQ(found.difference->first.layout, drifted_in_a ? 9 : 0.5);
    EXPECT_EQ(found.difference->first.alone, drifted_in_a ? 0.5 : 9);
  }
}

TEST(RunDifference, OfADigestItSaysTheFirstElementToo) {
  std::vector<StepWitness> b = run_of(by_stage, 2, 2);
  b[1].digests.clear();
  add_activation(b[1], "h.0", 2);
  add_leaf_gradient(b[1], 0, 14);
  b[0].digests.clear();
  add_activation(b[0], "h.1", 2);
  element(b[1], "parameter", 2, 1) = 8;  // h.0.w
  const RunComparison found = compare_runs(run_of(by_tensor, 2, 2), b, 2, 2, 2);
  ASSERT_TRUE(found.difference);
  EXPECT_EQ(text_of(found.difference->first),
            "step 2: activation of h.0 (layer 0, leaf 0, micro-batch 0) on rank 0: its digest is "
            "another");
  ASSERT_TRUE(found.difference->element);
  EXPECT_EQ(found.difference->element->name, "h.0.w");
  EXPECT_EQ(found.difference->element->index, 1);
}

TEST(RunDifference, StagesGiveTheirLayersInTheOrderOfTheModel) {
  const std::vector<StepWitness> ranks = by_stage(0);
  const StepWitness whole = joined({&ranks[0], &ranks[1]});
  std::vector<std::string> names, layers;
  for (const plan::Param& param : whole.table.params) names.push_back(param.name);
  for (const files::WitnessDigest& digest : whole.digests) {
    if (digest.kind == "activation") layers.push_back(digest.name);
  }
  EXPECT_EQ(layers, (std::vector<std::string>{"h.0", "h.1"}));
  // wte comes behind a layer here, as a head would: its rank has been asked later.
  EXPECT_EQ(names, (std::vector<std::string>{"h.0.w", "h.1.w", "wte"}));
}

TEST(RunDifference, MomentsThatOneRunStreamsAreNotMissed) {
  std::vector<StepWitness> b = run_of(by_stage, 1, 1);
  for (StepWitness& witness : b) {
    std::erase_if(witness.pieces,
                  [](const WitnessPiece& piece) { return piece.kind.starts_with("moment"); });
  }
  const RunComparison found = compare_runs(run_of(by_tensor, 1, 1), b, 1, 1, 2);
  EXPECT_TRUE(found.missing.empty()) << found.missing.front();
  EXPECT_EQ(found.equal_steps, 1);
}

TEST(RunDifference, WhatOneHasNotLeftIsNotEqual) {
  std::vector<StepWitness> b = run_of(by_stage, 1, 2);
  std::erase_if(b[2].pieces, [](const WitnessPiece& piece) { return piece.kind == "gradient"; });
  const RunComparison found = compare_runs(run_of(by_tensor, 1, 2), b, 1, 2, 2);
  EXPECT_EQ(found.equal_steps, 1);
  EXPECT_FALSE(found.missing.empty());
  EXPECT_FALSE(compare_runs(run_of(by_tensor, 1, 1), b, 1, 2, 2).missing.empty());
}

}  // namespace
}  // namespace lockstep::report
