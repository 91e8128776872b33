// What a resumed run may change: every key is classified, and what differs is refused with both
// values.
#include "lockstep/plan/resume_rules.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::plan {
namespace {

template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

std::string refusal_of(const TrainConfig& saved, const TrainConfig& now) {
  return refusal([&] { check_resume(saved, now, "runs/a-1"); });
}

/// Another value that the key takes, by the shape of the one it has.
std::string other_value(const TrainConfig& config, const std::string& key) {
  const nlohmann::json value = get_value(config, key);
  std::vector<std::string> tries;
  if (value.is_boolean()) {
    tries = {value.get<bool>() ? "false" : "true"};
  } else if (value.is_number_float()) {
    tries = {"0.25", "2", "0.5", "32"};
  } else if (value.is_number_integer()) {
    tries = {std::to_string(value.get<int64_t>() + 1), std::to_string(value.get<int64_t>() * 2)};
  } else {
    tries = {"2",    "none",  "always",    "zero1", "disk",  "linear",   "skip",
             "bf16", "group", "aten",      "bytes", "gpt2",  "sgd",      "direct",
             "gloo", "sqrt",  "optimizer", "gpipe", "block", "a/file.x", "1024"};
  }
  for (const std::string& text : tries) {
    TrainConfig other = config;
    try {
      set_key(other, key, text);
    } catch (const UsageError&) {
      continue;
    }
    if (get_key(other, key) != get_key(config, key)) return text;
  }
  return "";
}

TEST(ResumeRules, EveryKeyIsClassifiedOnceInTheOrderOfTheTable) {
  const std::vector<ConfigKey>& keys = config_keys();
  const std::vector<ResumeRule>& rules = resume_rules();
  std::vector<std::string> of_keys, of_rules;
  for (const ConfigKey& key : keys) of_keys.push_back(key.name);
  for (const ResumeRule& rule : rules) of_rules.push_back(rule.key);
  EXPECT_EQ(of_rules, of_keys) << "a new key says in plan/resume_rules.cpp whether it may change";
  for (const ResumeRule& rule : rules) {
    EXPECT_EQ(std::string(rule.why).empty(), rule.may != MayChange::never) << rule.key;
  }
}

/// Key by key: another value of a free one goes, of a named one only where it is named, of the rest
/// never.
TEST(ResumeRules, ADifferenceIsRefusedWithBothValuesUnlessItMayBe) {
  const TrainConfig saved = preset("nano");
  for (const ResumeRule& rule : resume_rules()) {
    if (rule.key == std::string("run.may_change")) continue;
    TrainConfig now = saved;
    const std::string value = other_value(saved, rule.key);
    ASSERT_NE(value, "") << rule.key;
    set_key(now, rule.key, value);
    // Other ranks that share layers have grains of their own, unless those of the run are kept.
    keep_grains(now, saved);
    const std::string said = refusal_of(saved, now);
    if (rule.may == MayChange::freely) {
      EXPECT_EQ(said, "") << rule.key;
      continue;
    }
    EXPECT_NE(said.find(std::string(rule.key) + " = " + get_key(now, rule.key)), std::string::npos)
        << rule.key << ": " << said;
    const bool can_be_named =
        said.find("--set run.may_change=" + std::string(rule.key)) != std::string::npos;
    EXPECT_EQ(can_be_named, rule.may == MayChange::if_named) << rule.key << ": " << said;
    EXPECT_EQ(said.find("--from runs/a-1") != std::string::npos, rule.may == MayChange::never)
        << rule.key << ": " << said;
    now.run.may_change = rule.key;
    if (rule.may == MayChange::if_named) {
      EXPECT_EQ(refusal_of(saved, now), "") << rule.key;
    }
  }
}

TEST(ResumeRules, AllThatDiffersIsToldAtOnce) {
  TrainConfig saved = preset("nano");
  TrainConfig now = saved;
  now.optim.lr = 0.5;
  now.run.steps = 800;
  now.model.width = 64;
  now.run.may_change = "optim.decay";
  const std::string said = refusal_of(saved, now);
  EXPECT_NE(said.find("run.steps = 800, but it was 600"), std::string::npos) << said;
  EXPECT_NE(said.find("optim.lr = 0.5, but it was 0.004"), std::string::npos) << said;
  EXPECT_NE(said.find("model.width = 64, but it was 128: the saved state is of another model"),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("--set run.may_change=optim.decay,run.steps,optim.lr"), std::string::npos)
      << said;
}

TEST(ResumeRules, AutoIsWhatItStandsFor) {
  const TrainConfig saved = preset("nano");
  TrainConfig now = saved;
  now.numerics.grains = 4;
  now.numerics.tensor_grains = 1;
  now.model.vocab = resolved_vocab(saved);
  EXPECT_EQ(refusal_of(saved, now), "");
  now.numerics.grains = 2;
  EXPECT_NE(refusal_of(saved, now).find("numerics.grains = 2, but it was 4"), std::string::npos);
}

/// Saved by two ranks that shared layers, and gone on with on one: in the grains of two.
TEST(ResumeRules, GrainsLeftOpenAreThoseOfTheRun) {
  TrainConfig saved = preset("nano");
  saved.parallel.tensor = 2;
  TrainConfig now = preset("nano");
  EXPECT_NE(refusal_of(saved, now).find("numerics.tensor_grains = 1, but it was 2"),
            std::string::npos);
  keep_grains(now, saved);
  EXPECT_EQ(now.numerics.tensor_grains, 2);
  EXPECT_EQ(refusal_of(saved, now), "");

  saved = preset("nano");
  saved.parallel.context = 2;
  saved.numerics.grains = 2;
  now = preset("nano");
  keep_grains(now, saved);
  EXPECT_EQ(now.numerics.context_grains, 2);
  EXPECT_EQ(now.numerics.grains, 2);
}

TEST(ResumeRules, NamesAreCheckedBeforeAnythingRuns) {
  TrainConfig config = preset("nano");
  const auto said_of = [&config](const char* names) {
    config.run.may_change = names;
    return refusal([&] { check(config, 1); });
  };
  EXPECT_EQ(said_of(" optim.lr , run.steps,identity"), "");
  EXPECT_NE(said_of("optim.lrr").find("Did you mean \"optim.lr\"?"), std::string::npos);
  EXPECT_NE(said_of("model.width").find("never changes"), std::string::npos);
  EXPECT_NE(said_of("comm.engine").find("leave it out"), std::string::npos);
  EXPECT_NE(said_of("optim.lr,,run.steps"), "");
}

TEST(ResumeIdentity, WhatDiffersIsNamed) {
  const std::string saved = "B16 b4 G4 M1 T1 fp32 aten-1.13 avx512 1t";
  TrainConfig config = preset("nano");
  const auto said_of = [&](const std::string& now) {
    return refusal([&] { check_identity(saved, now, config); });
  };
  EXPECT_EQ(said_of(saved), "");
  const std::string other_cpu = "B16 b4 G4 M1 T1 fp32 aten-1.13 avx2 1t";
  const std::string said = said_of(other_cpu);
  EXPECT_NE(said.find("instruction set: avx2, but it was avx512"), std::string::npos) << said;
  EXPECT_NE(said.find("--set run.may_change=identity"), std::string::npos) << said;
  const std::string compute = said_of("B16 b4 G4 M1 T1 bf16 aten-1.13 avx512 1t");
  EXPECT_NE(compute.find("compute type: bf16, but it was fp32"), std::string::npos) << compute;
  EXPECT_NE(compute.find("run.may_change=precision.compute"), std::string::npos) << compute;
  const std::string grains = said_of("B16 b4 G2 M2 T1 fp32 aten-1.13 avx512 1t");
  EXPECT_NE(grains.find("grains: G2, but it was G4"), std::string::npos) << grains;
  EXPECT_EQ(grains.find("may_change"), std::string::npos) << grains;
  EXPECT_NE(said_of("B16 b4 G4 M1 T1 C2 fp32 aten-1.13 avx512 1t").find("context grains"),
            std::string::npos);

  config.run.may_change = "identity";
  EXPECT_EQ(said_of(other_cpu), "");
  EXPECT_EQ(said_of("B16 b4 G4 M1 T1 fp32 fused-1+aten-1.13 avx2 1t"), "");
  EXPECT_NE(said_of("B16 b4 G2 M2 T1 fp32 aten-1.13 avx2 1t"), "");
  EXPECT_NE(said_of("B16 b4 G4 M1 T1 bf16 aten-1.13 avx512 1t"), "");
}

}  // namespace
}  // namespace lockstep::plan
