#include "lockstep/plan/train_config.h"

#include <gtest/gtest.h>

#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/plan/batch_plan.h"

namespace lockstep::plan {
namespace {

/// The message that `work` is refused with.
template <class Work>
std::string refusal_of(const Work& work) {
  try {
    work();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "not refused";
}

std::string refusal_of_set(const std::string& key, const std::string& text) {
  TrainConfig config;
  const nlohmann::json before = to_json(config);
  const std::string message = refusal_of([&] { set_key(config, key, text); });
  EXPECT_EQ(to_json(config), before) << "a refused value was kept";
  return message;
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "not in: " << text << "\nlooked for: " << part;
}

TEST(TrainConfig, EveryKeyReadsBackExactly) {
  for (const std::string& name : preset_names()) {
    const TrainConfig config = preset(name);
    TrainConfig copy;
    for (const ConfigKey& key : config_keys()) {
      set_key(copy, key.name, get_key(config, key.name));
      EXPECT_FALSE(key.doc.empty());
    }
    EXPECT_EQ(to_json(copy), to_json(config));
    EXPECT_EQ(to_json(from_json(nlohmann::json::parse(to_json(config).dump()))), to_json(config));
  }
}

TEST(TrainConfig, TheTableReachesEveryMember) {
  // A key that stood for another's member would change that one too.
  for (const ConfigKey& changed : config_keys()) {
    TrainConfig config;
    const nlohmann::json before = to_json(config);
    bool set = false;
    for (const char* value : {"3",    "0.25",  "false", "true",    "linear", "threads", "mlp",
                              "text", "bytes", "lamb",  "halving", "zero2",  "always",  "block",
                              "disk", "batch", "skip",  "bf16",    "4",      "aten"}) {
      try {
        set_key(config, changed.name, value);
        set = true;
        if (to_json(config) != before) break;
      } catch (const UsageError&) {
      }
    }
    EXPECT_TRUE(set) << changed.name;
    int changes = 0;
    for (const ConfigKey& key : config_keys()) {
      const TrainConfig defaults;
      if (get_key(config, key.name) == get_key(defaults, key.name)) continue;
      EXPECT_EQ(key.name, changed.name);
      ++changes;
    }
    const bool only_one_value = changed.name == "data.tokenizer";
    EXPECT_EQ(changes, only_one_value ? 0 : 1) << changed.name;
  }
}

TEST(TrainConfig, DoublesKeepEveryBit) {
  TrainConfig config;
  for (const double value : {0.1, 1e-3, 4e-3, 1.0 / 3, 5e-324, 99.99999999999999}) {
    config.optim.lr = value;
    TrainConfig copy;
    set_key(copy, "optim.lr", get_key(config, "optim.lr"));
    EXPECT_EQ(copy.optim.lr, value);
    EXPECT_EQ(from_json(nlohmann::json::parse(to_json(config).dump())).optim.lr, value);
  }
}

TEST(TrainConfig, AutoIsAValueOfThreeKeys) {
  TrainConfig config;
  config.model.vocab = config.numerics.grains = config.parallel.data = 7;
  for (const char* key : {"model.vocab", "numerics.grains", "parallel.data"}) {
    set_key(config, key, "auto");
    EXPECT_EQ(get_key(config, key), "auto");
  }
  EXPECT_EQ(config.model.vocab, 0);
  EXPECT_EQ(config.numerics.grains, 0);
  EXPECT_EQ(config.parallel.data, -1);
  set_key(config, "parallel.data", "3");
  set_key(config, "parallel.data", "-1");
  EXPECT_EQ(config.parallel.data, -1);
  expect_contains(refusal_of_set("model.heads", "auto"), "a whole number from 1");
}

TEST(TrainConfig, RefusesWhatIsOutOfRangeAndSaysTheRange) {
  const std::vector<std::pair<const char*, std::vector<const char*>>> refused = {
      {"run.steps",
       {"-1", "1.5", "1e3", "", " 5", "5 ", "0x10", "99999999999999999999", "1000000001"}},
      {"run.seed", {"-1", "9223372036854775808"}},
      {"run.name", {"", ".", "..", "a/b", ".hidden", "a\nb"}},
      {"run.dir", {""}},
      {"model.layers", {"0", "-3", "many"}},
      {"model.vocab", {"0", "-1", "Auto"}},
      {"model.dropout", {"-0.1", "1", "nan"}},
      {"model.tied", {"yes", "1", "True", ""}},
      {"model.norm_eps", {"0", "-1e-5"}},
      {"data.global_batch", {"0"}},
      {"data.tokenizer", {"gpt3"}},
      {"numerics.grains", {"0", "-1", "1.0"}},
      {"optim.lr", {"0", "-1", "inf", "-inf", "nan", "1,5", "1e-3x", "1e400", "101"}},
      {"optim.beta1", {"1", "-0.1", "1.5", "nan"}},
      {"optim.beta2", {"1"}},
      {"optim.eps", {"0"}},
      {"optim.decay", {"cosin", "", "Cosine"}},
      {"optim.name", {"adam", "SGD", ""}},
      {"optim.momentum", {"1", "-0.1", "nan"}},
      {"optim.trust", {"0", "-1", "inf"}},
      {"parallel.data", {"0", "-2"}},
      {"comm.engine", {"tcp"}},
      {"comm.timeout_s", {"0", "inf"}},
      {"log.every", {"0"}},
      {"log.eval_every", {"-1"}},
  };
  for (const auto& [key, values] : refused) {
    for (const char* value : values) {
      const std::string message = refusal_of_set(key, value);
      expect_contains(message, key);
      expect_contains(message, "It wants ");
    }
  }
  expect_contains(refusal_of_set("optim.beta1", "1"), "a number from 0, below 1");
  expect_contains(refusal_of_set("optim.lr", "0"), "a number above 0 to 100");
  expect_contains(refusal_of_set("optim.decay", "cosin"), "Did you mean \"cosine\"?");
  expect_contains(refusal_of_set("run.name", "\xff"), "UTF-8");
}

TEST(TrainConfig, TakesTheEdgesOfItsRanges) {
  TrainConfig config;
  for (const auto& [key, value] :
       std::vector<std::pair<const char*, const char*>>{{"run.steps", "0"},
                                                        {"run.seed", "9223372036854775807"},
                                                        {"optim.lr", "100"},
                                                        {"optim.beta1", "0"},
                                                        {"optim.warmup_steps", "1000000000"},
                                                        {"optim.grad_clip", "0"},
                                                        {"optim.lr", "+1E-3"},
                                                        {"model.ffn", "0"},
                                                        {"optim.min_lr_ratio", "1"}}) {
    EXPECT_NO_THROW(set_key(config, key, value)) << key << " = " << value;
  }
  EXPECT_EQ(config.optim.lr, 1e-3);
  EXPECT_EQ(config.run.seed, std::numeric_limits<int64_t>::max());
}

TEST(TrainConfig, AnUnknownKeyOffersTheNearest) {
  expect_contains(refusal_of_set("optim.lrr", "1"), "Did you mean \"optim.lr\"?");
  expect_contains(refusal_of_set("optm.beta1", "1"), "Did you mean \"optim.beta1\"?");
  expect_contains(refusal_of_set("lr", "1"), "Did you mean \"optim.lr\"?");
  expect_contains(refusal_of_set("model.lr", "1"), "Did you mean \"optim.lr\"?");
  expect_contains(refusal_of_set("comm.whatever_else", "1"), "The keys of [comm] are engine, ");
  expect_contains(refusal_of_set("zzzzzz.qqqqqqqq", "1"), "The sections are run, model, ");
  expect_contains(refusal_of_set("", "1"), "there is no key \"\"");
}

TEST(TrainConfig, TypedValuesAreNotText) {
  TrainConfig config;
  const auto refused = [&](const char* key, const nlohmann::json& value) {
    expect_contains(refusal_of([&] { set_value(config, key, value); }), key);
  };
  refused("run.steps", "600");
  refused("run.steps", 600.0);
  refused("run.steps", uint64_t{1} << 63);
  refused("run.steps", true);
  refused("optim.lr", "4e-3");
  refused("optim.lr", std::numeric_limits<double>::quiet_NaN());
  refused("model.tied", 1);
  refused("run.name", 5);
  refused("optim.decay", nullptr);
  refused("run.steps", nlohmann::json::array({1}));
  set_value(config, "optim.lr", 1);  // a whole number is a number
  EXPECT_EQ(config.optim.lr, 1.0);
  set_value(config, "precision.loss_scale", 1024);  // a word or a number
  EXPECT_EQ(config.precision.loss_scale, "1024");
  EXPECT_EQ(to_json(config)["numerics"]["grains"], "auto");
}

TEST(TrainConfig, JsonIsStrict) {
  expect_contains(refusal_of([] { from_json({{"optim", {{"lrr", 1}}}}); }), "optim.lrr");
  expect_contains(refusal_of([] { from_json({{"optim", 3}}); }), "\"optim\"");
  expect_contains(refusal_of([] { from_json(nlohmann::json::array()); }), "sections");
  EXPECT_EQ(from_json({{"optim", {{"lr", 0.5}}}}).optim.lr, 0.5);
}

TEST(TrainConfig, PresetsFitOneRankAndMore) {
  for (const std::string& name : preset_names()) {
    const TrainConfig config = preset(name);
    EXPECT_EQ(config.run.name, name);
    for (const int ranks : {1, 2}) EXPECT_NO_THROW(check(config, ranks)) << name;
  }
  EXPECT_NO_THROW(check(preset("nano"), 3));
  EXPECT_EQ(preset("small").model.width, 384);
  expect_contains(refusal_of([] { preset("nanoo"); }), "Did you mean \"nano\"?");
}

// ---- rules between keys

/// Does what the message proposes after "fit:" or "fits:", first proposal only.
void follow_advice(TrainConfig& config, const std::string& message) {
  const std::string mark = " --set ";
  size_t at = message.find("fit");
  ASSERT_NE(at, std::string::npos) << message;
  const size_t end = std::min(message.find('\n', at), message.find(" or", at));
  while ((at = message.find(mark, at)) < end) {
    at += mark.size();
    const std::string set = message.substr(at, message.find_first_of(" \n,", at) - at);
    const size_t equals = set.find('=');
    set_key(config, set.substr(0, equals), set.substr(equals + 1));
  }
}

TEST(ConfigRules, HeadsDivideTheWidth) {
  TrainConfig config;
  config.model.heads = 5;
  const std::string message = refusal_of([&] { check(config, 1); });
  expect_contains(message, "model.heads = 5 does not divide model.width = 128");
  follow_advice(config, message);
  EXPECT_NO_THROW(check(config, 1));
  config.model.heads = 5;
  config.model.family = "mlp";  // has no heads, and cannot tie its output to its embedding
  const std::string tied = refusal_of([&] { check(config, 1); });
  expect_contains(tied, "--set model.tied=false");
  follow_advice(config, tied);
  EXPECT_NO_THROW(check(config, 1));
}

TEST(ConfigRules, DataRanksAreTheRanksOfTheJob) {
  TrainConfig config;
  config.parallel.data = 2;
  EXPECT_NO_THROW(check(config, 2));
  const std::string message = refusal_of([&] { check(config, 3); });
  expect_contains(message, "parallel.data = 2, but the job has 3 ranks");
  expect_contains(message, "-n 2");
  expect_contains(refusal_of([&] { check(config, 0); }), "-n 0");
}

TEST(ConfigRules, AdviceOnTheBatchIsGood) {
  // Every batch up to 24: what is refused comes with a setting that is then accepted, wherever any
  // setting of the same global batch is.
  for (int64_t global = 1; global <= 24; ++global) {
    for (int64_t micro = 1; micro <= global + 1; ++micro) {
      for (const int64_t grains : {0, 1, 2, 3, 8}) {
        for (const int ranks : {1, 2, 3, 5}) {
          TrainConfig config;
          config.data.global_batch = global;
          config.data.micro_batch = micro;
          config.numerics.grains = grains;
          bool fits = global % micro == 0;
          if (fits) {
            const int64_t micros = global / micro;
            fits = grains > 0 ? micros % grains == 0 && grains >= ranks
                              : plan_batch(global, micro, 0).grains >= ranks;
          }
          const std::string message = refusal_of([&] { check(config, ranks); });
          ASSERT_EQ(message == "not refused", fits) << message;
          if (fits) continue;
          ASSERT_EQ(message.find("This fits:") != std::string::npos, ranks <= global) << message;
          if (ranks > global) continue;
          follow_advice(config, message.substr(message.find("This fits:")));
          ASSERT_NO_THROW(check(config, ranks))
              << "global " << global << " micro " << micro << " grains " << grains << " ranks "
              << ranks << "\n"
              << message;
          EXPECT_EQ(config.data.global_batch, global);
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::plan
