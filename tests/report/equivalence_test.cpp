#include "lockstep/report/equivalence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace lockstep::report {
namespace {

using files::StepWitness;
using files::WitnessDigest;
using files::WitnessPiece;

constexpr int kLeaves = 2;
constexpr int64_t kTerms = 100;
const char* const kKinds[] = {"gradient", "moment1", "moment2", "parameter"};

// A model of two layers: wte (7 rows, in 2 grains of 4 with a row of padding) and h.N.w.
plan::ParamDeclaration grain(int which) {
  return {
      .name = "wte.g" + std::to_string(which),
      .shape = {4, 2},
      .init = {},
      .slice = {
          .logical = "wte", .shape = {7, 2}, .dim = 0, .blocks = {8}, .grain = which, .grains = 2}};
}

plan::ParamTable table_of(const std::vector<int>& grains) {
  std::vector<plan::ParamDeclaration> declared;
  for (const int which : grains) declared.push_back(grain(which));
  for (const char* name : {"h.0.w", "h.12.w"}) {
    declared.push_back({.name = name, .shape = {3}, .init = {}});
  }
  return plan::make_param_table(declared, {});
}

/// What element `index` of the logical tensor is.
float value_of(const std::string& kind, const std::string& name, int64_t index, int64_t step) {
  return static_cast<float>(kind.size() + 2 * name.size()) + 0.25f * static_cast<float>(index) +
         static_cast<float>(step + 1);
}

plan::Digest digest_of(const std::string& name, float value) {
  plan::Digest digest;
  digest.add(name, 0, &value, 1);
  return digest;
}

/// A rank that holds these grains of wte and both layers whole.
StepWitness witness(int rank, int64_t step, const std::vector<int>& grains) {
  StepWitness made{.rank = rank,
                   .step = step,
                   .loss = 3.5,
                   .grad_norm = 1.25,
                   .table = table_of(grains),
                   .digests = {},
                   .pieces = {}};
  for (const char* kind : kKinds) {
    for (int p = 0; p < std::ssize(made.table.params); ++p) {
      const plan::Param& param = made.table.params[static_cast<size_t>(p)];
      WitnessPiece piece{.kind = kind, .param = p, .lo = 0, .hi = param.numel, .values = {}};
      piece.values.resize(static_cast<size_t>(param.numel), -99);  // padding: nobody looks
      for (const plan::LogicalRun& run : plan::logical_runs(param, 0, param.numel)) {
        for (int64_t i = 0; run.first >= 0 && i < run.size(); ++i) {
          piece.values[static_cast<size_t>(run.lo + i)] =
              value_of(kind, plan::logical_name(param), run.first + i, step);
        }
      }
      made.pieces.push_back(piece);
    }
  }
  return made;
}

/// One rank writes what is there once: activations and layers' gradients.
void add_digests(StepWitness& to) {
  for (int leaf = 0; leaf < kLeaves; ++leaf) {
    for (int micro = 0; micro < 2; ++micro) {
      for (const char* layer : {"embed", "h.0", "h.12"}) {
        to.digests.push_back({"activation", layer, leaf, micro, digest_of(layer, 1)});
      }
    }
    for (const char* name : {"h.0.w", "h.12.w"}) {
      to.digests.push_back({"leaf-gradient", name, leaf, -1, digest_of(name, 2)});
    }
  }
}
void add_wte_digests(StepWitness& to, float which) {
  for (int leaf = 0; leaf < kLeaves; ++leaf) {
    to.digests.push_back({"leaf-gradient", "wte", leaf, -1, digest_of("wte", which)});
  }
}

struct Runs {
  std::vector<StepWitness> layout;  // 2 tensor ranks, step 1, then step 2
  std::vector<StepWitness> alone;

  Runs() {
    for (const int64_t step : {0, 1}) {
      for (const int rank : {0, 1}) {
        layout.push_back(witness(rank, step, {rank}));
        add_wte_digests(layout.back(), static_cast<float>(rank));
      }
      add_digests(layout[layout.size() - 2]);
      alone.push_back(witness(0, step, {0, 1}));
      add_digests(alone.back());
      add_wte_digests(alone.back(), 0);
      add_wte_digests(alone.back(), 1);
    }
  }
  Equivalence compared(bool exact = false) const {
    return compare(layout, alone, {.ranks = 2, .steps = 2, .terms = kTerms, .exact = exact});
  }
};

/// The piece of a kind of the `param`-th parameter of a rank.
WitnessPiece& piece_of(StepWitness& rank, const std::string& kind, int param) {
  for (WitnessPiece& piece : rank.pieces) {
    if (piece.kind == kind && piece.param == param) return piece;
  }
  throw std::logic_error("no such piece");
}

WitnessDigest& digest_in(StepWitness& rank, const std::string& name, int leaf, int micro) {
  for (WitnessDigest& digest : rank.digests) {
    if (digest.name == name && digest.leaf == leaf && digest.micro == micro) return digest;
  }
  throw std::logic_error("no such digest");
}

KindResult result_of(const Equivalence& found, const std::string& kind) {
  for (const KindResult& result : found.kinds) {
    if (result.kind == kind) return result;
  }
  throw std::logic_error("no such kind");
}

TEST(Equivalence, GrainsAndDigestsOfSeveralRanksMakeTheWhole) {
  const Equivalence found = Runs().compared();
  EXPECT_EQ(found.verdict, Verdict::equal) << text_of(found);
  EXPECT_FALSE(found.first);
  EXPECT_EQ(result_of(found, "activation").compared, 2 * 12);
  EXPECT_EQ(result_of(found, "leaf-gradient").compared, 2 * 6);
  EXPECT_EQ(result_of(found, "loss").compared, 4);
  EXPECT_EQ(result_of(found, "parameter").compared, 2 * 6) << "each rank's pieces, replicas too";
  EXPECT_NE(text_of(found).find("parameter      12 compared, equal in bits"), std::string::npos)
      << text_of(found);
}

struct Damage {
  const char* what;
  std::function<void(Runs&)> happens;
  std::string first;  // what text_of says
};

/// Each difference alone: found, and named.
TEST(Equivalence, NamesWhatDiffers) {
  const std::vector<Damage> damages = {
      {"an activation of the second micro-batch",
       [](Runs& runs) { digest_in(runs.layout[0], "h.12", 1, 1).digest.low ^= 1; },
       "step 1: activation of h.12 (layer 12, leaf 1, micro-batch 1) on rank 0: its digest is "
       "another"},
      {"a leaf's gradient that two ranks hold grains of",
       [](Runs& runs) { digest_in(runs.layout[0], "wte", 1, -1).digest.low ^= 1; },
       "step 1: leaf-gradient of wte (leaf 1): its digest is another"},
      {"the loss on a rank", [](Runs& runs) { runs.layout[3].loss = 3.75; },
       "step 2: loss on rank 1 is 3.75, alone 3.5"},
      {"the norm on a rank", [](Runs& runs) { runs.layout[2].grad_norm = 2; },
       "step 2: norm on rank 0 is 2, alone 1.25"},
      {"a gradient in the second grain, by its logical index",
       [](Runs& runs) { piece_of(runs.layout[1], "gradient", 0).values[3] = 0; },
       "step 1: gradient of wte on rank 1: element 11 is 0, alone 17.75"},
      {"a moment", [](Runs& runs) { piece_of(runs.layout[0], "moment2", 1).values[2] = 0; },
       "step 1: moment2 of h.0.w (layer 0) on rank 0: element 2 is 0, alone 18.5"},
      {"a parameter of a replica that has drifted",
       [](Runs& runs) { piece_of(runs.layout[3], "parameter", 2).values[0] = 9; },
       "step 2: parameter of h.12.w (layer 12) on rank 1: element 0 is 9, alone 23"}};
  for (const Damage& damage : damages) {
    SCOPED_TRACE(damage.what);
    Runs runs;
    damage.happens(runs);
    const Equivalence found = runs.compared();
    EXPECT_EQ(found.verdict, Verdict::broken);
    ASSERT_TRUE(found.first);
    EXPECT_EQ(text_of(*found.first), damage.first);
    EXPECT_TRUE(found.missing.empty());
    EXPECT_EQ(to_json(found)["first_difference"]["text"], damage.first);
    EXPECT_EQ(result_of(found, found.first->kind).unequal, 1);
  }
}

TEST(Equivalence, PaddingIsNobodys) {
  Runs runs;
  piece_of(runs.layout[1], "parameter", 0).values[7] = 1e9f;  // row 8 of 7
  EXPECT_EQ(runs.compared().verdict, Verdict::equal);
}

/// All at once, then without the earliest, and so on: what is left is nearest to the cause.
TEST(Equivalence, TheFirstDifferenceIsNearestToTheCause) {
  const auto unlike = [](const std::string& kind, int param) {
    return [=](Runs& runs) { piece_of(runs.layout[0], kind, param).values[0] = 0; };
  };
  const auto digest = [](const char* name, int leaf, int micro) {
    return [=](Runs& runs) { digest_in(runs.layout[0], name, leaf, micro).digest.high ^= 1; };
  };
  const std::vector<std::pair<std::string, std::function<void(Runs&)>>> in_order = {
      {"activation of h.12 (layer 12, leaf 0, micro-batch 0)", digest("h.12", 0, 0)},
      {"activation of embed (leaf 0, micro-batch 1)", digest("embed", 0, 1)},
      {"activation of h.0 (layer 0, leaf 1, micro-batch 0)", digest("h.0", 1, 0)},
      {"loss", [](Runs& runs) { runs.layout[0].loss = 0; }},
      {"leaf-gradient of h.12.w (layer 12, leaf 0)", digest("h.12.w", 0, -1)},
      {"leaf-gradient of h.0.w (layer 0, leaf 0)", digest("h.0.w", 0, -1)},
      {"leaf-gradient of h.12.w (layer 12, leaf 1)", digest("h.12.w", 1, -1)},
      {"gradient of h.12.w (layer 12)", unlike("gradient", 2)},
      {"gradient of h.0.w (layer 0)", unlike("gradient", 1)},
      {"norm", [](Runs& runs) { runs.layout[0].grad_norm = 0; }},
      {"moment1 of wte", unlike("moment1", 0)},
      {"moment1 of h.0.w (layer 0)", unlike("moment1", 1)},
      {"moment2 of wte", unlike("moment2", 0)},
      {"parameter of h.0.w (layer 0)", unlike("parameter", 1)}};
  for (size_t from = 0; from < in_order.size(); ++from) {
    Runs runs;
    piece_of(runs.layout[2], "gradient", 2).values[0] = 0;  // of the next step: later than all
    for (size_t i = from; i < in_order.size(); ++i) in_order[i].second(runs);
    const Equivalence found = runs.compared();
    ASSERT_TRUE(found.first);
    EXPECT_TRUE(text_of(*found.first).starts_with("step 1: " + in_order[from].first + " on rank 0"))
        << text_of(*found.first) << "\nwanted " << in_order[from].first;
  }
}

TEST(Equivalence, WhatIsMissingIsBroken) {
  const auto missing = [](const std::function<void(Runs&)>& happens) {
    Runs runs;
    happens(runs);
    const Equivalence found = runs.compared();
    EXPECT_EQ(found.verdict, Verdict::broken);
    return found.missing.empty() ? std::string("nothing") : found.missing.front();
  };
  EXPECT_EQ(missing([](Runs& runs) { runs.layout.erase(runs.layout.begin() + 3); }),
            "step 2: rank 1 has left no witness");
  EXPECT_EQ(missing([](Runs& runs) { runs.alone.pop_back(); }),
            "step 2: the lone run has left no witness");
  // The last element of the second grain that is no padding.
  EXPECT_EQ(missing([](Runs& runs) {
              WitnessPiece& piece = piece_of(runs.layout[1], "moment1", 0);
              piece.hi = 5;
              piece.values.resize(5);
            }),
            "step 1: moment1 of wte: elements 13 to 13 are on no rank");
  EXPECT_EQ(missing([](Runs& runs) {
              for (StepWitness& rank : runs.layout) {
                std::erase_if(rank.digests, [](const auto& digest) {
                  return digest.name == "h.12" && digest.leaf == 1;
                });
              }
            }),
            "step 1: activation of h.12, leaf 1, micro-batch 0: no rank has it");
  EXPECT_EQ(missing([](Runs& runs) {
              runs.layout[1].digests.push_back({"activation", "h.13", 0, 0, digest_of("a", 1)});
            }),
            "step 1: activation of h.13, leaf 0 of rank 1 is not in the lone run");
  EXPECT_EQ(missing([](Runs& runs) {
              for (StepWitness& step : runs.alone) {
                std::erase_if(step.pieces, [](const auto& piece) {
                  return piece.kind == "moment1" && piece.param == 3;
                });
              }
            }),
            "step 1: moment1 of h.12.w of rank 0 is not in the lone run");
}

TEST(Equivalence, NothingComparedIsNotEqual) {
  Runs runs;
  for (std::vector<StepWitness>* side : {&runs.layout, &runs.alone}) {
    for (StepWitness& step : *side) {
      std::erase_if(step.pieces, [](const auto& piece) { return piece.kind == "moment2"; });
    }
  }
  const Equivalence found = runs.compared();
  EXPECT_EQ(found.verdict, Verdict::broken);
  ASSERT_FALSE(found.missing.empty());
  EXPECT_EQ(found.missing.front(), "step 1: moment2 of wte: the lone run has not left all of it");
  EXPECT_NE(text_of(found).find("  moment2        none\n"), std::string::npos) << text_of(found);
}

/// The largest of wte's gradients is 18.25 in step 1: the bound is 100 * 2^-24 of that, 1.09e-4.
TEST(Equivalence, RoundingIsWithinAndMoreIsNot) {
  const auto off_by = [](float difference) {
    Runs runs;
    piece_of(runs.layout[0], "gradient", 0).values[0] += difference;
    return runs;
  };
  const Equivalence within = off_by(1.0e-4f).compared();
  EXPECT_EQ(within.verdict, Verdict::within) << text_of(within);
  ASSERT_TRUE(within.first);
  EXPECT_NEAR(within.first->bound, 100 * 0x1p-24 * 18.25, 1e-12);
  EXPECT_FALSE(within.first_beyond);
  EXPECT_EQ(result_of(within, "gradient").beyond, 0);
  EXPECT_EQ(off_by(1.0e-4f).compared(/*exact=*/true).verdict, Verdict::broken);
  const Equivalence beyond = off_by(1.2e-4f).compared();
  EXPECT_EQ(beyond.verdict, Verdict::broken);
  EXPECT_EQ(result_of(beyond, "gradient").beyond, 1);
  EXPECT_EQ(Runs().compared(/*exact=*/true).verdict, Verdict::equal);

  Runs both = off_by(1.0e-4f);
  piece_of(both.layout[2], "parameter", 1).values[1] = 0;
  const Equivalence later = both.compared();
  EXPECT_EQ(later.verdict, Verdict::broken) << "rounding comes first, but is not all";
  EXPECT_NE(text_of(later).find("first beyond rounding: step 2: parameter of h.0.w"),
            std::string::npos)
      << text_of(later);
}

TEST(Equivalence, ADigestAloneIsNoRounding) {
  Runs runs;
  digest_in(runs.layout[0], "h.0", 0, 0).digest.low ^= 1;
  EXPECT_EQ(runs.compared().verdict, Verdict::broken) << "and no value has moved";
  piece_of(runs.layout[0], "gradient", 0).values[0] += 1.0e-4f;
  EXPECT_EQ(runs.compared().verdict, Verdict::within) << "values say how far it went";
}

TEST(Equivalence, ZeroHasASignAndNanIsBeyondEverything) {
  Runs runs;
  runs.alone[0].loss = 0.0;
  runs.layout[0].loss = -0.0;
  runs.layout[1].loss = 0.0;
  EXPECT_EQ(runs.compared().verdict, Verdict::within);
  EXPECT_EQ(runs.compared().first->rank, 0);
  runs.layout[1].loss = 1e-300;
  EXPECT_EQ(runs.compared().verdict, Verdict::broken) << "nothing but 0 is within 0 of 0";

  Runs broken;
  piece_of(broken.layout[0], "parameter", 1).values[0] = std::numeric_limits<float>::quiet_NaN();
  const Equivalence found = broken.compared();
  EXPECT_EQ(found.verdict, Verdict::broken);
  EXPECT_TRUE(to_json(found)["first_difference"]["layout"].is_null());
  EXPECT_EQ(text_of(*found.first),
            "step 1: parameter of h.0.w (layer 0) on rank 0: element 0 is nan, alone 20");
}

TEST(Equivalence, TermsAreTokensAndTheLongestProduct) {
  plan::TrainConfig config = plan::preset("nano");
  config.data.global_batch = 6;
  config.model.context = 5;
  config.model.vocab = 61;
  config.model.width = 12;
  config.model.ffn = 20;
  EXPECT_EQ(terms_of(config), 30 + 8 * 12);
  config.model.width = 4;
  EXPECT_EQ(terms_of(config), 30 + 61);
}

}  // namespace
}  // namespace lockstep::report
