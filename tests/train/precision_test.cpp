// Kernels and compute types through the real Trainer: one digest on every layout, each rank's share
// of the products, masters that keep what bf16 would lose.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "lockstep/kernels/gemm.h"
#include "lockstep/torch_inside/gemm_counter.h"
#include "tests/train/tiny_run.h"

namespace lockstep {
namespace {

using testing::TinyRun;

struct Layout {
  const char* name;
  int ranks;
  std::map<std::string, std::string> settings;
};

const std::vector<Layout> kLayouts = {
    {"two", 2, {}},
    {"three", 3, {}},
    {"zero1", 2, {{"parallel.shard", "zero1"}}},
    {"zero2", 4, {{"parallel.shard", "zero2"}}},
    {"zero3", 3, {{"parallel.shard", "zero3"}}},
    {"recompute", 1, {{"memory.recompute", "block"}}},
    {"tensor", 2, {{"parallel.tensor", "2"}}},
    {"sequence_zero3",
     4,
     {{"parallel.tensor", "2"}, {"parallel.sequence", "true"}, {"parallel.shard", "zero3"}}},
    {"zero_bubble", 2, {{"parallel.pipeline", "2"}, {"parallel.schedule", "zero-bubble"}}},
    {"three_axes",
     8,
     {{"parallel.tensor", "2"}, {"parallel.pipeline", "2"}, {"parallel.shard", "zero1"}}},
};

struct Arithmetic {
  const char* name;
  const char* kernels;
  const char* compute;
  const char* family;
};

const std::vector<Arithmetic> kArithmetics = {{"aten_fp32", "aten", "fp32", "gpt2"},
                                              {"fp32", "fused", "fp32", "gpt2"},
                                              {"bf16", "fused", "bf16", "gpt2"},
                                              {"fp16", "fused", "fp16", "gpt2"},
                                              {"llama_bf16", "fused", "bf16", "llama"}};

void set_all(TinyRun& tiny, const std::map<std::string, std::string>& settings) {
  for (const auto& [key, value] : settings) plan::set_key(tiny.config, key, value);
}

bool can_run(const Arithmetic& arithmetic) {
  return std::string(arithmetic.compute) != "bf16" || kernels::has_bf16_products();
}

struct RunOf : TinyRun {
  explicit RunOf(const Arithmetic& arithmetic) {
    set_all(*this, {{"numerics.kernels", arithmetic.kernels},
                    {"precision.compute", arithmetic.compute},
                    {"model.family", arithmetic.family},
                    {"model.bias", std::string(arithmetic.family) == "gpt2" ? "true" : "false"},
                    {"model.dropout", "0.1"},
                    {"model.context", "12"},
                    {"numerics.grains", "4"},
                    {"numerics.tensor_grains", "2"},
                    {"optim.grad_clip", "0.5"}});
  }
};

class Precision : public ::testing::TestWithParam<Arithmetic> {};

TEST_P(Precision, OneDigestOnEveryLayout) {
  if (!can_run(GetParam())) GTEST_SKIP() << "no bf16 products here";
  torch_inside::install_gemm_counter();
  const nlohmann::json alone = RunOf(GetParam()).run(1);
  const auto all_flops = alone["ranks"][0]["gemm_flops"].get<double>();
  ASSERT_GT(all_flops, 0);
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(layout.name);
    RunOf tiny(GetParam());
    set_all(tiny, layout.settings);
    const nlohmann::json got = tiny.run(layout.ranks);
    EXPECT_EQ(got["param_digest"], alone["param_digest"]);
    EXPECT_EQ(got["grad_norm"].get<double>(), alone["grad_norm"].get<double>());
    EXPECT_EQ(got["loss"].get<double>(), alone["loss"].get<double>());
    EXPECT_EQ(got["val_loss"].get<double>(), alone["val_loss"].get<double>());
    EXPECT_EQ(got["identity"], alone["identity"]);
    for (const auto& [name, group] : got["groups"].items()) {
      EXPECT_EQ(group["bytes"], group["planned_bytes"]) << name;
    }
    // Nobody does all the work, and together they do it once (recompute does blocks twice; the
    // last leaf of three ranks' four is one rank's).
    double sum = 0;
    for (const auto& rank : got["ranks"]) {
      const auto flops = rank["gemm_flops"].get<double>();
      EXPECT_LE(flops, (layout.ranks > 1 ? 0.75 : 2) * all_flops);
      sum += flops;
    }
    const bool again = std::string(layout.name) == "recompute";
    EXPECT_NEAR(sum / all_flops, again ? 1.25 : 1, again ? 0.25 : 0.02);
  }
}

INSTANTIATE_TEST_SUITE_P(Arithmetics, Precision, ::testing::ValuesIn(kArithmetics),
                         [](const auto& info) { return info.param.name; });

TEST(Precision, EachArithmeticIsARunOfItsOwn) {
  std::map<std::string, std::string> identity_of;
  for (const Arithmetic& arithmetic : kArithmetics) {
    if (std::string(arithmetic.family) == "llama" || !can_run(arithmetic)) continue;
    const nlohmann::json got = RunOf(arithmetic).run(1);
    EXPECT_TRUE(identity_of.emplace(got["param_digest"], got["identity"]).second)
        << arithmetic.name << " has the bits of " << identity_of[got["param_digest"]];
  }
  std::map<std::string, int> identities;
  for (const auto& [digest, identity] : identity_of) ++identities[identity];
  EXPECT_EQ(identities.size(), identity_of.size()) << "and a name of its own";
}

// ZERO-12: bf16 with nothing sharded and with each stage, the norm and the weights after every
// step.
TEST(Precision, ZERO_12_EveryStageHasTheNormAndTheWeights) {
  if (!kernels::has_bf16_products()) GTEST_SKIP() << "no bf16 products here";
  for (int64_t steps = 1; steps <= 3; ++steps) {
    std::string digest;
    double norm = 0;
    for (const char* stage : {"none", "zero1", "zero2", "zero3"}) {
      TinyRun tiny;
      set_all(tiny, {{"precision.compute", "bf16"}, {"parallel.shard", stage}});
      tiny.config.run.steps = steps;
      const nlohmann::json got = tiny.run(2);
      if (digest.empty()) {
        digest = got["param_digest"];
        norm = got["grad_norm"].get<double>();
        // No loss scale has a part in it: the norm is that of fp32 but for the rounding of
        // operands.
        TinyRun whole;
        whole.config.run.steps = steps;
        EXPECT_NEAR(norm / whole.run(2)["grad_norm"].get<double>(), 1, 0.02);
      }
      EXPECT_EQ(got["param_digest"], digest) << stage << ", step " << steps;
      EXPECT_EQ(got["grad_norm"].get<double>(), norm) << stage << ", step " << steps;
    }
  }
}

}  // namespace
}  // namespace lockstep
