// Rules between the optimizer's and the log's settings.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/plan/train_config.h"

namespace lockstep::plan {
namespace {

std::string refusal_of(const std::function<void(TrainConfig&)>& change) {
  TrainConfig config = preset("nano");
  try {
    change(config);
    check(config, 2);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "not refused";
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "not in: " << text << "\nlooked for: " << part;
}

/// What the kernel would divide by zero with; betas, lr and decay are ranges of their keys.
TEST(ConfigRules, OPT_3_AnEpsThatVanishesAsAFloat) {
  expect_contains(refusal_of([](TrainConfig& c) { c.optim.eps = 1e-60; }), "optim.eps = 1e-60");
  for (const auto& [key, bad] : {std::pair{"optim.beta2", "1"},
                                 {"optim.beta1", "-0.1"},
                                 {"optim.eps", "0"},
                                 {"optim.eps", "-1e-08"},
                                 {"optim.lr", "nan"},
                                 {"optim.weight_decay", "-1"}}) {
    const std::string message =
        refusal_of([&key = key, &bad = bad](TrainConfig& c) { set_key(c, key, bad); });
    expect_contains(message, std::string(key) + " = " + bad);
  }
}

TEST(ConfigRules, LR_1_ScalingNeedsTheBatchItScalesFrom) {
  const std::string missing = refusal_of([](TrainConfig& c) { c.optim.lr_scaling = "sqrt"; });
  expect_contains(missing, "--set optim.base_batch=16");
  const std::string idle = refusal_of([](TrainConfig& c) { c.optim.base_batch = 256; });
  expect_contains(idle, "no effect");
  expect_contains(refusal_of([](TrainConfig& c) {
                    c.optim.base_batch = 256;
                    c.optim.lr_scaling = "linear";
                  }),
                  "not refused");
}

TEST(ConfigRules, SelectiveRecomputeNeedsAttention) {
  const auto change = [](const char* family, const char* recompute) {
    return [=](TrainConfig& c) {
      c.model.family = family;
      c.model.tied = false;
      c.memory.recompute = recompute;
    };
  };
  expect_contains(refusal_of(change("mlp", "selective")), "--set memory.recompute=block");
  expect_contains(refusal_of(change("mlp", "block")), "not refused");
  expect_contains(refusal_of(change("gpt2", "selective")), "not refused");
}

TEST(ConfigRules, TheMetricsAddressIsHostAndPort) {
  for (const char* good : {"127.0.0.1:0", "localhost:9400", "[::1]:65535", ""}) {
    expect_contains(refusal_of([&](TrainConfig& c) { c.log.http = good; }), "not refused");
  }
  for (const char* bad : {"9400", ":9400", "localhost:", "localhost:65536", "localhost:-1",
                          "localhost:94x", "localhost:999999"}) {
    expect_contains(refusal_of([&](TrainConfig& c) { c.log.http = bad; }), "is not HOST:PORT");
  }
}

}  // namespace
}  // namespace lockstep::plan
