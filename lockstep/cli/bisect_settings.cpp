#include "lockstep/cli/bisect_settings.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/plan/resume_rules.h"
#include "lockstep/plan/run_layout.h"

namespace lockstep::cli {
namespace {

struct Fact {
  const char* what;
  std::string a;
  std::string b;
};

/// What has to be the same for a step of one to be compared with a step of the other.
std::vector<Fact> facts_of(const plan::TrainConfig& a, const plan::TrainConfig& b) {
  std::vector<Fact> facts;
  const auto key = [&](const char* name) {
    facts.push_back({name, plan::get_key(a, name), plan::get_key(b, name)});
  };
  const auto number = [&](const char* name, int64_t of_a, int64_t of_b) {
    facts.push_back({name, std::to_string(of_a), std::to_string(of_b)});
  };
  key("model.family");
  key("model.options");
  key("model.layers");
  key("model.heads");
  key("model.kv_heads");
  key("model.width");
  number("model.ffn", plan::feed_forward_width(a), plan::feed_forward_width(b));
  key("model.context");
  number("model.vocab", plan::resolved_vocab(a), plan::resolved_vocab(b));
  key("model.tied");
  key("model.bias");
  key("model.norm");
  key("optim.name");
  key("data.global_batch");
  key("data.micro_batch");
  key("data.ramp_from");
  key("data.ramp_steps");
  number("numerics.grains", plan::batch_of(a).grains, plan::batch_of(b).grains);
  number("numerics.tensor_grains", plan::tensor_grains_of(a), plan::tensor_grains_of(b));
  number("numerics.context_grains", plan::context_grains_of(a), plan::context_grains_of(b));
  return facts;
}

bool says_nothing(const std::string& key) {
  for (const char* section : {"log.", "checkpoint."}) {
    if (key.starts_with(section)) return true;
  }
  for (const char* name : {"run.name", "run.dir", "run.resume", "run.may_change"}) {
    if (key == name) return true;
  }
  return false;
}

/// "0.001, from step 21 on 0.002".
std::string values_of(const RunRecord& run, const std::string& key) {
  std::string text, last;
  for (const auto& [after, config] : run.settings) {
    std::string value = plan::get_key(config, key);
    if (value.empty()) value = "\"\"";
    if (!text.empty() && value == last) continue;
    text += text.empty() ? value : base::str(", from step ", after + 1, " on ", value);
    last = value;
  }
  return text;
}

}  // namespace

void require_comparable(const RunRecord& a, const RunRecord& b) {
  for (const Fact& fact : facts_of(a.settings.rbegin()->second, b.settings.rbegin()->second)) {
    if (fact.a == fact.b) continue;
    throw UsageError(base::str(
        "the runs cannot be compared: ", fact.what, " is ", fact.a, " in ", a.folder, " and ",
        fact.b, " in ", b.folder,
        ".\n  Their steps differ from the first one on, by what was asked for. Compare runs of one "
        "model, batch and cut into grains."));
  }
}

std::vector<SettingDifference> settings_that_differ(const RunRecord& a, const RunRecord& b) {
  std::vector<SettingDifference> all;
  for (const plan::ResumeRule& rule : plan::resume_rules()) {
    const std::string key = rule.key;
    if (says_nothing(key)) continue;
    SettingDifference difference{.key = key,
                                 .a = values_of(a, key),
                                 .b = values_of(b, key),
                                 .free = rule.may == plan::MayChange::freely};
    if (difference.a != difference.b) all.push_back(std::move(difference));
  }
  std::stable_partition(all.begin(), all.end(),
                        [](const SettingDifference& one) { return !one.free; });
  return all;
}

}  // namespace lockstep::cli
