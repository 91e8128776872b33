#include "lockstep/cli/config.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/files/temp_folder.h"

namespace lockstep::cli {
namespace {

/// A variable of the environment for the time of a test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

class ConfigSourcesTest : public testing::Test {
 protected:
  std::string file_with(const std::string& text) {
    const std::string path = folder_.file("my config.toml");
    std::ofstream(path) << text;
    return path;
  }

  std::string refusal_of(const ConfigSources& sources) {
    try {
      resolve_config(sources);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "not refused";
  }

  std::string refusal_of_file(const std::string& text) {
    return refusal_of({.preset = "", .file = file_with(text), .sets = {}});
  }

  void expect_contains(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "not in: " << text << "\nlooked for: " << part;
  }

  files::TempFolder folder_{"config"};
};

TEST_F(ConfigSourcesTest, LaterSourcesWinAndAreRemembered) {
  const std::string file = file_with(
      "# a comment\n"
      "[run]\n"
      "steps = 7\n"
      "seed = 8\n"
      "[optim]\n"
      "lr = 1   # a whole number is one\n"
      "warmup_steps = 9\n");
  const Variable seed("LOCKSTEP_SET_RUN__SEED", "80");
  const Variable warmup("LOCKSTEP_SET_OPTIM__WARMUP_STEPS", "90");
  const ResolvedConfig resolved = resolve_config(
      {.preset = "small", .file = file, .sets = {"optim.warmup_steps=900", "run.name=a=b"}});
  EXPECT_EQ(resolved.config.model.width, 384);
  EXPECT_EQ(resolved.config.run.steps, 7);
  EXPECT_EQ(resolved.config.run.seed, 80);
  EXPECT_EQ(resolved.config.optim.lr, 1.0);
  EXPECT_EQ(resolved.config.optim.warmup_steps, 900);
  EXPECT_EQ(resolved.config.run.name, "a=b");
  EXPECT_EQ(resolved.origins.at("model.width"), "preset small");
  EXPECT_EQ(resolved.origins.at("run.steps"), "file " + file + ":3");
  EXPECT_EQ(resolved.origins.at("optim.lr"), "file " + file + ":6");
  EXPECT_EQ(resolved.origins.at("run.seed"), "environment LOCKSTEP_SET_RUN__SEED");
  EXPECT_EQ(resolved.origins.at("optim.warmup_steps"), "--set");
  EXPECT_FALSE(resolved.origins.contains("model.dropout"));
}

TEST_F(ConfigSourcesTest, MistakesSayWhereTheyAre) {
  expect_contains(refusal_of_file("[run]\nsteps = 5\n[optim]\n\nlrr = 1\n"),
                  "config.toml:5: there is no key \"optim.lrr\".\n  Did you mean \"optim.lr\"?");
  expect_contains(refusal_of_file("[optim]\nlr = -1\n"),
                  "config.toml:2: optim.lr = -1 does not fit");
  expect_contains(refusal_of_file("[run]\nsteps = \"5\"\n"), "config.toml:2: run.steps = \"5\"");
  expect_contains(refusal_of_file("lr = 1\n"), "config.toml:1: there is no key \"lr\"");
  expect_contains(refusal_of_file("[optm]\nlr = 1\n"),
                  "config.toml:2: there is no key \"optm.lr\"");
  expect_contains(refusal_of_file("[optm]\n"), "config.toml:1: there is no section [optm]");
  expect_contains(refusal_of_file("optim = 3\n"), "config.toml:1: there is no key \"optim\"");
  expect_contains(refusal_of_file("[optim.lr]\nx = 1\n"), "config.toml:1: \"optim.lr\" is a table");
  expect_contains(refusal_of_file("[run]\nsteps = [1]\n"),
                  "config.toml:2: \"run.steps\" is a list");
  expect_contains(refusal_of_file("[run]\nsteps = 1\nsteps = 2\n"), "config.toml:3: no TOML: ");
  expect_contains(refusal_of_file("[run\n"), "config.toml:1: no TOML: ");
  expect_contains(refusal_of_file("[optim]\nlr = nan\n"), "config.toml:2: optim.lr = nan");
  // The first from the top, whatever the letters.
  expect_contains(refusal_of_file("[run]\nzz = 1\n[data]\naa = 1\n"), "config.toml:2: ");
  expect_contains(refusal_of({.preset = "", .file = "nano", .sets = {}}), "--preset nano");
  expect_contains(refusal_of({.preset = "nono", .file = "", .sets = {}}), "\"nano\"");
  expect_contains(refusal_of({.preset = "", .file = folder_.path(), .sets = {}}),
                  "no regular file");
  expect_contains(refusal_of({.preset = "nano", .file = "", .sets = {"optim.lr"}}),
                  "--set optim.lr: it wants SECTION.KEY=VALUE");
  expect_contains(refusal_of({.preset = "nano", .file = "", .sets = {"optim.lr=fast"}}),
                  "--set optim.lr=fast: optim.lr = \"fast\"");
  const Variable variable("LOCKSTEP_SET_OPTIM__LRR", "1");
  expect_contains(refusal_of({.preset = "nano", .file = "", .sets = {}}),
                  "environment LOCKSTEP_SET_OPTIM__LRR: there is no key \"optim.lrr\"");
}

TEST_F(ConfigSourcesTest, WhatIsPrintedIsTomlThatSaysTheSame) {
  const ResolvedConfig first = resolve_config(
      {.preset = "small",
       .file = "",
       .sets = {"run.name=q \"u\" \\ o", "optim.lr=0.1", "numerics.grains=2", "run.dir=/a b/ä"}});
  const std::string text = config_as_toml(first);
  expect_contains(text, "lr = 0.1                              # --set\n");
  expect_contains(text, "width = 384                           # preset small\n");
  expect_contains(text, "beta1 = 0.9                           # default\n");
  const std::string file = file_with(text);
  const ResolvedConfig again = resolve_config({.preset = "", .file = file, .sets = {}});
  EXPECT_EQ(plan::to_json(again.config), plan::to_json(first.config));
  EXPECT_EQ(again.origins.size(), plan::config_keys().size());  // nothing is left out
}

TEST_F(ConfigSourcesTest, AnEmptyFileIsTheDefaults) {
  const ResolvedConfig resolved = resolve_config({.preset = "", .file = file_with(""), .sets = {}});
  EXPECT_EQ(plan::to_json(resolved.config), plan::to_json(plan::TrainConfig{}));
}

}  // namespace
}  // namespace lockstep::cli
