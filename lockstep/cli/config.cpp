#include "lockstep/cli/config.h"

#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/weights.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kVariablePrefix = "LOCKSTEP_SET_";

std::string section_of(const std::string& key) { return key.substr(0, key.find('.')); }

std::vector<std::string> sections() {
  std::vector<std::string> names;
  for (const plan::ConfigKey& key : plan::config_keys()) {
    const std::string section = section_of(key.name);
    if (names.empty() || names.back() != section) names.push_back(section);
  }
  return names;
}

/// Runs `set`; an error of it names the place that the setting came from.
template <class Set>
void set_from(ResolvedConfig& resolved, const std::string& key, const std::string& origin,
              const std::string& place, const Set& set) {
  try {
    set();
  } catch (const UsageError& error) {
    throw UsageError(base::str(place, ": ", error.what()));
  }
  resolved.origins[key] = origin;
}

void apply_all(ResolvedConfig& resolved, const plan::TrainConfig& config,
               const std::string& origin) {
  const plan::TrainConfig defaults;
  resolved.config = config;
  for (const plan::ConfigKey& key : plan::config_keys()) {
    if (plan::get_value(resolved.config, key.name) != plan::get_value(defaults, key.name)) {
      resolved.origins[key.name] = origin;
    }
  }
}

void apply_model(ResolvedConfig& resolved, const std::string& path) {
  const plan::TrainConfig before = resolved.config;
  checkpoints::take_model_settings(*checkpoints::open_weights(path), resolved.config);
  for (const plan::ConfigKey& key : plan::config_keys()) {
    if (plan::get_value(resolved.config, key.name) != plan::get_value(before, key.name)) {
      resolved.origins[key.name] = "model " + path;
    }
  }
}

void apply_file(ResolvedConfig& resolved, const std::string& path) {
  for (const FileSetting& setting : read_toml(path, sections())) {
    const std::string place = base::str(path, ":", setting.line);
    set_from(resolved, setting.key, "file " + place, place,
             [&] { plan::set_value(resolved.config, setting.key, setting.value); });
  }
}

/// LOCKSTEP_SET_OPTIM__LR -> optim.lr
std::string key_of_variable(std::string_view variable) {
  std::string key(variable.substr(kVariablePrefix.size()));
  std::transform(key.begin(), key.end(), key.begin(),
                 [](char c) { return 'A' <= c && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (const size_t at = key.find("__"); at != std::string::npos) key.replace(at, 2, ".");
  return key;
}

void apply_environment(ResolvedConfig& resolved) {
  std::vector<std::string> entries;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (std::string_view(*entry).starts_with(kVariablePrefix)) entries.emplace_back(*entry);
  }
  std::sort(entries.begin(), entries.end());  // the first mistake told is the same one every time
  for (const std::string& entry : entries) {
    const size_t equals = entry.find('=');
    const std::string variable = entry.substr(0, equals);
    const std::string key = key_of_variable(variable);
    set_from(resolved, key, "environment " + variable, "environment " + variable,
             [&] { plan::set_key(resolved.config, key, entry.substr(equals + 1)); });
  }
}

void apply_set(ResolvedConfig& resolved, const std::string& set) {
  const size_t equals = set.find('=');
  if (equals == std::string::npos) {
    throw UsageError(base::str("--set ", set, ": it wants SECTION.KEY=VALUE, as in optim.lr=1e-3"));
  }
  const std::string key = set.substr(0, equals);
  set_from(resolved, key, "--set", "--set " + set,
           [&] { plan::set_key(resolved.config, key, set.substr(equals + 1)); });
}

std::string toml_value(const plan::TrainConfig& config, const std::string& key) {
  const nlohmann::json value = plan::get_value(config, key);
  return value.is_string() ? value.dump() : plan::get_key(config, key);
}

}  // namespace

ResolvedConfig resolve_config(const ConfigSources& sources) {
  ResolvedConfig resolved;
  if (sources.base) apply_all(resolved, sources.base->config, sources.base->origin);
  if (!sources.preset.empty()) {
    apply_all(resolved, plan::preset(sources.preset), "preset " + sources.preset);
  }
  if (!sources.model.empty()) apply_model(resolved, sources.model);
  if (!sources.file.empty()) apply_file(resolved, sources.file);
  apply_environment(resolved);
  for (const std::string& set : sources.sets) apply_set(resolved, set);
  return resolved;
}

std::string config_as_toml(const ResolvedConfig& resolved) {
  constexpr size_t kCommentColumn = 36;
  std::string text = "# preset < file < environment < --set\n";
  std::string section;
  for (const plan::ConfigKey& key : plan::config_keys()) {
    if (section_of(key.name) != section) {
      section = section_of(key.name);
      text += base::str("\n[", section, "]\n");
    }
    std::string line = base::str(key.name.substr(section.size() + 1), " = ",
                                 toml_value(resolved.config, key.name));
    if (line.size() < kCommentColumn) line.resize(kCommentColumn, ' ');
    const auto origin = resolved.origins.find(key.name);
    text += base::str(line, "  # ", origin == resolved.origins.end() ? "default" : origin->second,
                      "\n");
  }
  return text;
}

}  // namespace lockstep::cli
