#include "lockstep/optim/param_groups.h"

#include <gtest/gtest.h>

#include <string>

#include "lockstep/base/error.h"

namespace lockstep::optim {
namespace {

plan::ParamTable table() {
  std::vector<plan::ParamDeclaration> declared;
  for (const auto& [name, shape] :
       {std::pair<std::string, std::vector<int64_t>>{"wte.weight", {4, 3}},
        {"h.0.fc.weight", {3, 3}},
        {"h.0.fc.bias", {3}},
        {"ln_f.weight", {3}}}) {
    declared.push_back({.name = name, .shape = shape, .trainable = true, .init = {}});
  }
  return plan::make_param_table(declared, {});
}

const plan::Param& named(const plan::ParamTable& table, const std::string& name) {
  return table.params[static_cast<size_t>(table.find(name))];
}

TEST(ParamGroups, TheFirstPatternThatFitsCounts) {
  const std::vector<ParamGroup> groups = {{.pattern = "*.bias", .lr_factor = 2},
                                          {.pattern = "h.*", .lr_factor = 3, .decay = false},
                                          {.pattern = "ln_f.*", .decay = true}};
  const plan::ParamTable params = table();
  check_groups(groups, params);
  EXPECT_EQ(rule_of(groups, named(params, "h.0.fc.bias")).lr_factor, 2);
  EXPECT_EQ(rule_of(groups, named(params, "h.0.fc.weight")).lr_factor, 3);
  EXPECT_FALSE(rule_of(groups, named(params, "h.0.fc.weight")).decay);
  EXPECT_TRUE(rule_of(groups, named(params, "ln_f.weight")).decay);
  EXPECT_EQ(rule_of(groups, named(params, "wte.weight")).lr_factor, 1);
  EXPECT_TRUE(rule_of(groups, named(params, "wte.weight")).decay);
}

TEST(ParamGroups, StarsStandForAnyCharacters) {
  const auto fits = [](const std::string& pattern, const std::string& name) {
    plan::Param param;
    param.name = name;
    return rule_of({{.pattern = pattern, .lr_factor = 7}}, param).lr_factor == 7;
  };
  EXPECT_TRUE(fits("a.b", "a.b"));
  EXPECT_FALSE(fits("a.b", "a.bc"));
  EXPECT_FALSE(fits("a.b", "xa.b"));
  EXPECT_TRUE(fits("*", "a.b.c"));
  EXPECT_TRUE(fits("a*c*", "abcabc"));
  EXPECT_TRUE(fits("*abc", "ababc"));
  EXPECT_FALSE(fits("*abd", "ababc"));
  EXPECT_TRUE(fits("h.*.bias", "h.0.fc.bias"));
  EXPECT_FALSE(fits("", "a"));
}

/// A tensor grain follows its parameter's name.
TEST(ParamGroups, GrainsFollowTheirParameter) {
  plan::Param param;
  param.name = "fc.weight@1";
  param.slice.logical = "fc.weight";
  EXPECT_EQ(rule_of({{.pattern = "*.weight", .lr_factor = 7}}, param).lr_factor, 7);
}

TEST(ParamGroups, WhatHasNoEffectIsRefused) {
  const auto refusal = [](const std::vector<ParamGroup>& groups) -> std::string {
    try {
      check_groups(groups, table());
      return "";
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(refusal({}), "");
  EXPECT_NE(refusal({{.pattern = "wpe.*"}}).find("\"wpe.*\" has no trained parameter"),
            std::string::npos);
  EXPECT_NE(refusal({{.pattern = "*"}, {.pattern = "wte.*"}}).find("\"wte.*\""), std::string::npos);
  EXPECT_NE(refusal({{.pattern = "*", .lr_factor = -1}}).find("lr_factor is -1"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::optim
