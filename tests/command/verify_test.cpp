// `lockstep verify`: layouts that are right pass it, and each fault that is planted on purpose
// (base/planted_fault.h) is found and named.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <ostream>
#include <set>

#include "lockstep/base/planted_fault.h"
#include "tests/command/command.h"

namespace lockstep::testing {
namespace {

using Arguments = std::vector<std::string>;

struct Verified {
  int code = -1;
  nlohmann::json json;
  std::string err;
};

Verified verify(int ranks, const Arguments& settings, const Arguments& further = {}) {
  Arguments words = {"verify", "--preset", "nano8", "-n", std::to_string(ranks), "--json"};
  words.insert(words.end(), {"--set", "comm.timeout_s=20"});  // what hangs ends soon
  for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
  words.insert(words.end(), further.begin(), further.end());
  const CommandResult result = lockstep(words);
  return {.code = result.exit_code,
          .json = nlohmann::json::parse(result.out, nullptr, /*allow_exceptions=*/false),
          .err = result.err};
}

void expect_equal(int ranks, const Arguments& settings) {
  const Verified found = verify(ranks, settings, {"--steps", "2"});
  std::string layout = std::to_string(ranks);
  for (const std::string& setting : settings) layout += " " + setting;
  EXPECT_EQ(found.code, 0) << layout << "\n" << found.err;
  ASSERT_TRUE(found.json.is_object()) << layout;
  EXPECT_EQ(found.json["verdict"], "equal") << layout << "\n" << found.err;
  for (const auto& kind : found.json["kinds"]) EXPECT_EQ(kind["unequal"], 0) << kind;
}

TEST(Verify, LayoutsOfEveryKindComputeWhatOneRankComputes) {
  expect_equal(1, {"memory.recompute=block"});
  expect_equal(3, {"parallel.shard=zero2"});
  expect_equal(2, {"parallel.tensor=2", "parallel.sequence=true"});
  expect_equal(4, {"parallel.pipeline=2", "parallel.tensor=2", "numerics.tensor_grains=4"});
  expect_equal(4, {"parallel.pipeline=2", "parallel.schedule=interleaved", "parallel.chunks=2"});
  expect_equal(4, {"parallel.shard=zero3", "parallel.replicas=2", "memory.recompute=selective",
                   "numerics.kernels=aten"});
  expect_equal(4, {"parallel.context=2", "parallel.shard=zero3", "numerics.context_grains=3",
                   "model.context=126"});
}

/// A layout in which the fault acts, and what of a step is the first to show it.
struct Planted {
  const char* fault;
  int ranks;
  Arguments settings;
  std::set<std::string> kinds;  // of the first difference
  const char* name = "";        // that its parameter or layer contains
  Arguments further = {};

  friend void PrintTo(const Planted& row, std::ostream* out) { *out << row.fault; }
};

const Arguments kTwoMicroBatches = {"numerics.grains=4", "data.global_batch=32"};
const Arguments kPipeline = {"parallel.pipeline=2"};
const Arguments kZeroBubble = {"parallel.pipeline=2", "parallel.schedule=zero-bubble"};
const Arguments kZero1 = {"parallel.shard=zero1"};
const Arguments kZero3 = {"parallel.shard=zero3"};
const Arguments kTensor = {"parallel.tensor=2"};
const Arguments kSequence = {"parallel.tensor=2", "parallel.sequence=true"};

const Arguments kContext = {"parallel.context=2"};
const Arguments kFourSlices = {"parallel.tensor=2", "parallel.sequence=true",
                               "numerics.tensor_grains=4"};

const std::vector<Planted>& planted() {
  static const std::set<std::string> kForward = {"activation", "loss", "leaf-gradient"};
  static const std::set<std::string> kLeaf = {"leaf-gradient"};
  static const std::set<std::string> kSum = {"gradient"};
  static const std::set<std::string> kNorm = {"norm"};
  static const std::set<std::string> kUpdate = {"moment1", "moment2", "parameter"};
  static const std::vector<Planted> all = {
      {"skipped-reduction", 2, {}, kSum},
      {"wrong-divisor", 2, {}, kLeaf},
      {"rescaled-accumulation", 2, kTwoMicroBatches, kLeaf},
      {"dropped-micro-batch", 2, kTwoMicroBatches, kLeaf},
      {"lost-leaf", 2, {}, kSum},
      // Another order of the same sum is no more than rounding: only --exact refuses it.
      {"leaf-order", 3, {}, kSum, "", {"--exact"}},
      {"wrong-samples", 2, {}, kForward},
      {"gradients-kept", 2, {}, kLeaf},
      {"swapped-shards", 2, kZero1, kUpdate},
      {"unpublished-shard", 2, kZero1, kUpdate},
      {"lost-shard", 2, kZero3, kForward},
      {"own-norm", 2, kZero1, kNorm},
      {"norm-counts-twice", 2, kPipeline, kNorm},
      {"untied-head", 2, kPipeline, {"leaf-gradient", "gradient"}, "wte"},
      {"tied-twice", 2, {}, {"leaf-gradient", "gradient"}, "wte"},
      {"wrong-start-values", 2, kTensor, kForward},
      {"no-decay", 2, {}, {"parameter"}, "weight"},
      {"wrong-step-count", 2, {}, {"parameter"}},
      {"reused-send-buffer", 2, kPipeline, kForward},
      {"swapped-micro-batches", 2, kPipeline, kForward},
      {"lost-input-gradient", 2, kPipeline, kLeaf},
      {"dropped-weight-gradient", 2, kZeroBubble, kLeaf, "attn"},
      {"doubled-weight-gradient", 2, kZeroBubble, kLeaf, "attn"},
      {"forgotten-sample-key", 2, {}, kForward},
      {"same-heads-everywhere", 2, kTensor, kForward},
      {"bias-on-each-rank", 2, kTensor, kForward},
      {"skipped-forward-sum", 2, kTensor, kForward},
      {"skipped-backward-sum", 2, kTensor, kLeaf},
      {"missing-norm-sum", 2, kFourSlices, kLeaf, "ln_"},
      {"bias-of-local-tokens", 2, kSequence, kLeaf, "bias"},
      {"local-positions", 2, kSequence, kForward},
      {"local-targets", 2, kTensor, kForward},
      {"local-softmax", 2, kTensor, kForward},
      {"same-context-positions", 2, kContext, kForward},
      {"skipped-visitor", 2, kContext, kForward},
      {"gradients-not-home", 2, kContext, kLeaf, "attn"},
      {"lost-context-grain", 2, kContext, kSum},
  };
  return all;
}

TEST(Verify, HasALayoutForEveryFault) {
  std::set<std::string> rows;
  for (const Planted& row : planted()) rows.insert(row.fault);
  EXPECT_EQ(rows.size(), planted().size());
  for (const base::FaultName& fault : base::kFaults)
    EXPECT_TRUE(rows.contains(fault.name)) << fault.name;
  EXPECT_EQ(rows.size(), base::kFaults.size());
}

class VerifyFault : public ::testing::TestWithParam<Planted> {};

TEST_P(VerifyFault, IsFoundAndNamed) {
  const Planted& row = GetParam();
  Arguments further = row.further;
  further.insert(further.end(), {"--plant", row.fault});
  const Verified found = verify(row.ranks, row.settings, further);
  EXPECT_EQ(found.code, 8) << found.err;
  ASSERT_TRUE(found.json.is_object()) << found.err;
  EXPECT_EQ(found.json["verdict"], "broken");
  const nlohmann::json& first = found.json["first_difference"];
  ASSERT_TRUE(first.is_object()) << found.err;
  EXPECT_TRUE(row.kinds.contains(first["kind"].get<std::string>())) << first;
  EXPECT_NE(first["name"].get<std::string>().find(row.name), std::string::npos) << first;
}

std::string name_of(const ::testing::TestParamInfo<Planted>& info) {
  std::string name = info.param.fault;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Planted, VerifyFault, ::testing::ValuesIn(planted()), name_of);

TEST(Verify, AnotherOrderOfASumIsWithinRounding) {
  const Verified found = verify(3, {}, {"--plant", "leaf-order", "--steps", "1"});
  ASSERT_TRUE(found.json.is_object()) << found.err;
  EXPECT_EQ(found.json["first_beyond_bound"], nullptr) << found.err;
  EXPECT_EQ(found.json["verdict"], "within");
  EXPECT_EQ(found.code, 0);
}

TEST(Verify, SaysWhatItVerifiedAndLeavesNothing) {
  const TempFolder temporary;
  const CommandResult result =
      lockstep({"verify", "--preset", "nano8", "-n", "2", "--set", "parallel.pipeline=2"},
               {"TMPDIR=" + temporary.path()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* part :
       {"twin      gpt2, 4 layers", "dropout 0.1 (the run has 0", "pipeline 2 (1f1b)",
        "against   1 rank, of the same identity: B8 b2 G4 M1 T1; 3 steps", "\n  parameter ",
        "equal in bits: in this layout"}) {
    EXPECT_NE(result.out.find(part), std::string::npos) << part << "\n" << result.out;
  }
  EXPECT_EQ(result.err, "");
  EXPECT_TRUE(std::filesystem::is_empty(temporary.path()));
}

TEST(Verify, KeepsWhatBothRunsLeftWhereItIsAskedTo) {
  const TempFolder folder;
  const std::string kept = folder.file("kept");
  EXPECT_EQ(verify(2, {}, {"--keep", kept, "--steps", "1"}).code, 0);
  EXPECT_TRUE(std::filesystem::exists(kept + "/layout/step_00000000.rank_0001.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(kept + "/alone/step_00000000.rank_0000.safetensors"));
  const Verified again = verify(2, {}, {"--keep", kept});
  EXPECT_EQ(again.code, 2);
  EXPECT_NE(again.err.find("holds files of something else"), std::string::npos) << again.err;
}

TEST(Verify, SettingsThatDoNotFitAreRefusedAsEverywhere) {
  const Verified layout = verify(3, {"parallel.pipeline=2"});
  EXPECT_EQ(layout.code, 2);
  EXPECT_NE(layout.err.find("do not divide -n 3"), std::string::npos) << layout.err;
  const Verified fault = verify(2, {}, {"--plant", "lost-leave"});
  EXPECT_EQ(fault.code, 2);
  EXPECT_NE(fault.err.find("Did you mean lost-leaf?"), std::string::npos) << fault.err;
  EXPECT_EQ(verify(2, {}, {"--steps", "0"}).code, 2);
  EXPECT_EQ(lockstep({"verify"}).exit_code, 2);
}

/// Every combination up to 8 ranks.
TEST(LongVerify, EveryMeshUpToEightRanks) {
  for (const int tensor : {1, 2, 4}) {
    for (const int pipeline : {1, 2, 4}) {
      for (const int context : {1, 2, 4}) {
        const int part = tensor * pipeline * context;
        for (int data = 1; part * data <= 8; ++data) {
          for (const char* shard : {"none", "zero1", "zero2", "zero3"}) {
            expect_equal(part * data,
                         {"parallel.tensor=" + std::to_string(tensor),
                          "parallel.pipeline=" + std::to_string(pipeline),
                          "parallel.context=" + std::to_string(context),
                          "parallel.shard=" + std::string(shard), "data.global_batch=32"});
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::testing
