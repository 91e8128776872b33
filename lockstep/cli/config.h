/// Where the settings of a run come from: preset < file < environment < --set, each later one over
/// the ones before, and each remembered. A run that goes on has its settings in the place of preset
/// and file; one that begins with the weights of a model has that model in the place of a preset's.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "lockstep/plan/train_config.h"

namespace lockstep::cli {

struct ConfigSources {
  /// The settings of a run that is gone on with.
  struct Base {
    plan::TrainConfig config;
    std::string origin;  // "run runs/nano-7f3a"
  };
  std::optional<Base> base = {};
  std::string preset;             // empty: none
  std::string model = {};         // start weights, whose model the run has; empty: none
  std::string file;               // empty: none
  std::vector<std::string> sets;  // "optim.lr=1e-3", of --set
};

struct ResolvedConfig {
  plan::TrainConfig config;
  std::map<std::string, std::string> origins;  // "optim.lr" -> "file nano.toml:12"; else default
};

/// Puts the sources together, with the LOCKSTEP_SET_SECTION__KEY variables of the environment.
/// Throws UsageError, naming the place: unknown section, key or preset (with the nearest name),
/// wrong type, out of range, no TOML; the file is not there. Throws StateError for a model that
/// cannot be read.
ResolvedConfig resolve_config(const ConfigSources& sources);

/// The settings as TOML that a later run can be given, with each value's origin as a comment.
std::string config_as_toml(const ResolvedConfig& resolved);

/// One `key = value` of a TOML file.
struct FileSetting {
  std::string key;  // "optim.lr"
  nlohmann::json value;
  int line = 0;
};

/// The settings of a file; `known_sections` are the tables that it may have. Throws UsageError.
std::vector<FileSetting> read_toml(const std::string& path,
                                   const std::vector<std::string>& known_sections);

}  // namespace lockstep::cli
