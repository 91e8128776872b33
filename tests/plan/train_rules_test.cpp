// Rules between settings: what is refused, and that what is offered then works.
#include <gtest/gtest.h>

#include <functional>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

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

/// A rank without a grain of the layers, or of the sequence, would have nothing to compute.
TEST(ConfigRules, RanksThatShareLayersHaveAGrainEach) {
  expect_contains(refusal_of([](TrainConfig& c) {
                    c.parallel.tensor = 2;
                    c.numerics.tensor_grains = 1;
                  }),
                  "2 ranks share numerics.tensor_grains = 1 grains");
  expect_contains(refusal_of([](TrainConfig& c) {
                    c.parallel.context = 2;
                    c.numerics.context_grains = 1;
                  }),
                  "2 ranks share numerics.context_grains = 1 grains");
  // What is offered is taken by every size that it divides: 3 divides the context alone.
  const std::string refusal = refusal_of([](TrainConfig& c) {
    c.parallel.tensor = 2;
    c.model.context = 33;
  });
  expect_contains(refusal, "does not divide model.context = 33");
  expect_contains(refusal, "No number of grains for 2 ranks does");
}

/// No options without effect: what the chosen optimizer does not read is refused.
TEST(ConfigRules, OptionsOfOtherOptimizersAreRefused) {
  const auto refusal = [](const char* name, const char* key, const char* value) {
    return refusal_of([=](TrainConfig& c) {
      c.optim.name = name;
      set_key(c, key, value);
    });
  };
  expect_contains(refusal("sgd", "optim.beta1", "0.5"),
                  "optim.beta1 = 0.5 has no effect with optim.name = \"sgd\".\n  These fit: --set "
                  "optim.beta1=0.9, or --set optim.name=adamw, or --set optim.name=lamb");
  expect_contains(refusal("lars", "optim.beta2", "0.5"), "no effect");
  expect_contains(refusal("lars", "optim.eps", "1e-6"), "no effect");
  expect_contains(refusal("adamw", "optim.momentum", "0.5"), "optim.name=sgd");
  expect_contains(refusal("lamb", "optim.momentum", "0.5"), "no effect");
  expect_contains(refusal("sgd", "optim.trust", "0.5"), "optim.name=lars");
  expect_contains(refusal("adamw", "optim.trust", "0.5"), "no effect");
  for (const auto& [name, key, value] : {std::tuple{"sgd", "optim.momentum", "0.5"},
                                         {"lars", "optim.momentum", "0"},
                                         {"lars", "optim.trust", "0.5"},
                                         {"lamb", "optim.beta1", "0.5"},
                                         {"lamb", "optim.eps", "1e-6"},
                                         {"adamw", "optim.beta2", "0.5"}}) {
    EXPECT_EQ(refusal(name, key, value), "not refused") << name << " " << key;
  }
  expect_contains(refusal("adamw", "optim.name", "adam"), "optim.name = \"adam\"");
}

TEST(ConfigRules, OPT_3_MomentumAndTrustHaveRanges) {
  for (const auto& [key, bad] : {std::pair{"optim.momentum", "1"},
                                 {"optim.momentum", "-0.1"},
                                 {"optim.momentum", "nan"},
                                 {"optim.trust", "0"},
                                 {"optim.trust", "-1"}}) {
    expect_contains(refusal_of([&key = key, &bad = bad](TrainConfig& c) { set_key(c, key, bad); }),
                    std::string(key) + " = " + bad);
  }
}

TEST(ConfigRules, OnlyAdamWStreamsItsStateFromAFile) {
  const auto with = [](const char* kinds) {
    return refusal_of([=](TrainConfig& c) {
      c.optim.name = "lamb";
      c.memory.offload = "disk";
      c.memory.offload_kinds = kinds;
    });
  };
  expect_contains(with("auto"), "which adamw can and optim.name = \"lamb\" cannot");
  expect_contains(with("optimizer"), "--set memory.offload=none");
  EXPECT_EQ(with("activations"), "not refused");
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

TEST(ConfigRules, SelectiveRecomputeNeedsAttentionThatKeepsScores) {
  const auto change = [](const char* family, const char* recompute, const char* kernels = "fused") {
    return [=](TrainConfig& c) {
      c.model.family = family;
      c.model.tied = false;
      c.memory.recompute = recompute;
      c.numerics.kernels = kernels;
    };
  };
  expect_contains(refusal_of(change("mlp", "selective")), "--set memory.recompute=block");
  expect_contains(refusal_of(change("mlp", "block")), "not refused");
  expect_contains(refusal_of(change("gpt2", "selective", "aten")), "not refused");
  const std::string fused = refusal_of(change("gpt2", "selective"));
  expect_contains(fused, "wants numerics.kernels = \"aten\"");
  expect_contains(fused, "--set memory.recompute=block");
  expect_contains(refusal_of(change("gpt2", "block")), "not refused");
}

TEST(ConfigRules, TypesOtherThanFp32NeedTheFusedKernels) {
  const auto change = [](const char* kernels, const char* compute) {
    return [=](TrainConfig& c) {
      c.numerics.kernels = kernels;
      c.precision.compute = compute;
    };
  };
  expect_contains(refusal_of(change("fused", "bf16")), "not refused");
  expect_contains(refusal_of(change("aten", "fp32")), "not refused");
  expect_contains(refusal_of(change("aten", "bf16")), "--set numerics.kernels=fused");
}

/// Takes the first offer of each refusal, until there is none: how many there were.
int refusals(TrainConfig config, int ranks) {
  for (int count = 0;; ++count) {
    try {
      check(config, ranks);
      return count;
    } catch (const UsageError& error) {
      std::string text = error.what();
      const size_t offer = text.find(": --set");
      if (offer == std::string::npos || count == 9) {
        ADD_FAILURE() << text;
        return -1;
      }
      std::istringstream words(text.substr(offer + 2));
      std::string flag;
      std::string setting;
      while (words >> flag >> setting && flag == "--set") {
        const size_t equals = setting.find('=');
        set_key(config, setting.substr(0, equals), setting.substr(equals + 1));
        // A schedule of one's own is a text that only its name brings along.
        if (setting.starts_with("parallel.schedule")) config.schedule_csv.clear();
      }
    }
  }
}

TEST(ConfigRules, OneRefusalSaysAllThatAnMlpHasNot) {
  const auto mlp = [](const std::vector<std::pair<const char*, const char*>>& settings) {
    TrainConfig config = preset("nano");
    set_key(config, "model.family", "mlp");
    for (const auto& [key, value] : settings) set_key(config, key, value);
    return config;
  };
  EXPECT_EQ(refusals(mlp({{"model.tied", "false"}}), 2), 0);
  EXPECT_EQ(refusals(mlp({}), 2), 1);
  EXPECT_EQ(refusals(mlp({{"memory.recompute", "selective"}}), 2), 1);
  EXPECT_EQ(refusals(mlp({{"precision.compute", "bf16"}}), 2), 1);
  EXPECT_EQ(refusals(mlp({{"model.kv_heads", "2"}}), 2), 1);
  EXPECT_EQ(refusals(mlp({{"parallel.pipeline", "2"}, {"parallel.tensor", "2"}}), 4), 1);
  EXPECT_EQ(refusals(mlp({{"parallel.schedule", "zero-bubble-v"}, {"parallel.stages", "2,2"}}), 1),
            1);
  EXPECT_EQ(refusals(mlp({{"parallel.schedule", "interleaved"}, {"parallel.chunks", "2"}}), 1), 1);
  // Eight data-parallel ranks want eight leaves, and the count of them that was given is another.
  EXPECT_EQ(refusals(mlp({{"parallel.pipeline", "8"}, {"parallel.data", "1"}}), 8), 1);
  TrainConfig table = mlp({{"parallel.schedule", "mine.csv"}, {"model.tied", "false"}});
  table.schedule_csv = "F0,B0\n";
  EXPECT_EQ(refusals(table, 1), 1);
}

TEST(ConfigRules, WhatAFamilyOffersFits) {
  TrainConfig llama = preset("nano");
  set_key(llama, "model.family", "llama");
  EXPECT_EQ(refusals(llama, 2), 1);
  llama.model.kv_heads = 3;
  EXPECT_EQ(refusals(llama, 2), 2);
  const std::string bias = refusal_of([](TrainConfig& c) { c.model.family = "llama"; });
  EXPECT_EQ(bias.find("tied"), std::string::npos) << bias;
}

TEST(ConfigRules, AVHasTwoChunks) {
  const auto with = [](int chunks) {
    return refusal_of([=](TrainConfig& c) {
      c.parallel.pipeline = 2;
      c.parallel.schedule = "zero-bubble-v";
      c.parallel.chunks = chunks;
    });
  };
  for (const int chunks : {1, 2}) expect_contains(with(chunks), "not refused");
  expect_contains(with(4), "--set parallel.chunks=2");
}

TEST(ConfigRules, WhatWouldFailAtTheStartIsRefusedBefore) {
  const auto with = [](const char* key, const char* value) {
    return refusal_of([=](TrainConfig& c) { set_key(c, key, value); });
  };
  for (const char* good : {"20,20,20", "20,40", "0", ""}) {
    expect_contains(with("run.synthetic_compute", good), "not refused");
  }
  for (const char* bad : {"20,", "a", "1,2,3,4", "-1", "70000", "nan"}) {
    expect_contains(with("run.synthetic_compute", bad), "run.synthetic_compute = \"");
  }
  // There is no model then whose parameters could be read or frozen.
  for (const char* const key : {"run.from", "optim.frozen"}) {
    expect_contains(with(key, "x"), "not refused");
    expect_contains(refusal_of([key](TrainConfig& c) {
                      set_key(c, key, "x");
                      set_key(c, "run.synthetic_compute", "20,20,20");
                    }),
                    std::string(key) + " is of a model's parameters");
  }
  for (const char* good : {"5", "5-7", "600-700", ""}) {
    expect_contains(with("log.trace_steps", good), "not refused");
  }
  for (const char* bad : {"0", "7-5", "5-", "a", "5,7", "-3"}) {
    expect_contains(with("log.trace_steps", bad), "is no step and no range of steps");
  }
  expect_contains(with("log.trace_steps", "601"), "--set log.trace_steps=600");
}

TEST(ConfigRules, OnePieceIsNoPieces) {
  const std::string text = refusal_of([](TrainConfig& c) { c.parallel.stages = "2,3"; });
  expect_contains(text, "4 layers are cut into 1 piece.");
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
