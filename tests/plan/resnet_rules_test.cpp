// Settings of a residual network.
#include "lockstep/plan/detail/resnet_rules.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/plan/twin_config.h"

namespace lockstep::plan {
namespace {

std::string refused(const TrainConfig& config, int ranks) {
  try {
    check(config, ranks);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

bool says(const std::string& message, const std::string& word) {
  return message.find(word) != std::string::npos;
}

TEST(ResnetRules, ThePresetFits) {
  for (const int ranks : {1, 2, 3, 4}) EXPECT_EQ(refused(preset("fashion"), ranks), "");
  TrainConfig config = preset("fashion");
  for (const char* shard : {"zero1", "zero2", "zero3"}) {
    config.parallel.shard = shard;
    EXPECT_EQ(refused(config, 3), "");
  }
}

TEST(ResnetRules, ItIsNeitherCutNorDivided) {
  for (const char* key : {"parallel.pipeline", "parallel.tensor", "parallel.context",
                          "numerics.tensor_grains", "numerics.context_grains"}) {
    TrainConfig config = preset("fashion");
    set_key(config, key, "2");
    const std::string message = refused(config, 2);
    EXPECT_TRUE(says(message, "resnet")) << message;
    EXPECT_TRUE(says(message, std::string("--set ") + key + "=")) << message;
  }
}

TEST(ResnetRules, WhatMeansNothingToItIsRefusedAtOnce) {
  TrainConfig config = preset("fashion");
  config.model.heads = 2;
  config.model.context = 64;
  config.model.dropout = 0.1;
  config.memory.recompute = "selective";
  const std::string message = refused(config, 1);
  for (const char* fits :
       {"model.heads=4", "model.context=128", "model.dropout=0", "memory.recompute=block"}) {
    EXPECT_TRUE(says(message, fits)) << message;
  }
  config = preset("fashion");
  config.memory.recompute = "block";
  EXPECT_EQ(refused(config, 1), "");
}

TEST(ResnetRules, NormsOverAllRanksWantAllRanks) {
  TrainConfig config = preset("fashion");
  config.model.norm = "sync";
  EXPECT_EQ(refused(config, 2), "");
  EXPECT_EQ(refused(config, 4), "");
  EXPECT_TRUE(says(refused(config, 3), "4 leaves do not divide by 3 ranks"));
}

TEST(ResnetRules, GroupsOfChannelsDivideTheWidth) {
  TrainConfig config = preset("fashion");
  config.model.norm = "group";
  EXPECT_EQ(refused(config, 2), "");
  config.model.width = 12;
  EXPECT_TRUE(says(refused(config, 2), "--set model.width=16"));
}

TEST(ResnetRules, ItsSettingsAreItsOwn) {
  TrainConfig config;
  config.model.norm = "batch";
  EXPECT_TRUE(says(refused(config, 1), "of the family resnet"));
  config = {};
  config.data.augment = true;
  EXPECT_TRUE(says(refused(config, 1), "of the family resnet"));
}

TEST(ResnetRules, ParametersAreCounted) {
  // ResNet-8 of width 16 (He et al., table 6, has ResNet-20 with 0.27 million in three colours).
  EXPECT_EQ(parameter_count(preset("fashion")), 75'002);
  TrainConfig twenty = preset("fashion");
  twenty.model.layers = 3;
  EXPECT_NEAR(static_cast<double>(parameter_count(twenty)), 0.27e6, 0.005e6);
  EXPECT_EQ(state_bytes_per_rank(preset("fashion"), 2), 16 * 75'002);
}

TEST(ResnetRules, ThereIsNoTwin) { EXPECT_THROW(twin_of(preset("fashion"), 2), UsageError); }

}  // namespace
}  // namespace lockstep::plan
