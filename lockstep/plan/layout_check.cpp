#include "lockstep/plan/layout_check.h"

#include <algorithm>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/plan/mesh_check.h"
#include "lockstep/plan/run_layout.h"

namespace lockstep::plan {
namespace {

/// Ranks that hold the same, and no shards of it, may lie inside a pipeline or outside.
Mesh named_mesh(const TrainConfig& config, int ranks) {
  std::vector<MeshAxis> axes = mesh_of(config, ranks).axes();
  for (MeshAxis& axis : axes) {
    if (axis.name == "shard" && config.parallel.shard == "none") axis.name = "dp";
  }
  return Mesh(std::move(axes));
}

struct Setting {
  std::string key;
  int64_t value = 0;
};

/// What gives `axis` another size, with as many ranks and the same bits; empty: nothing does.
std::vector<Setting> settings_for(const TrainConfig& config, const std::string& axis, int size,
                                  int ranks) {
  if (axis == "pp") return {{"parallel.pipeline", size}};
  if (axis == "replica") return {{"parallel.replicas", size}};
  if (axis == "shard") {
    const auto sequences = data_ranks(config, ranks) / static_cast<int>(config.parallel.context);
    return {{"parallel.replicas", sequences / size}};
  }
  if (axis == "cp") {
    std::vector<Setting> settings = {{"parallel.context", size}};
    if (config.numerics.context_grains == 0) {
      settings.push_back({"numerics.context_grains", context_grains_of(config)});
    }
    return settings;
  }
  if (axis != "tp") return {};
  std::vector<Setting> settings = {{"parallel.tensor", size}};
  if (config.numerics.tensor_grains == 0) {
    settings.push_back({"numerics.tensor_grains", tensor_grains_of(config)});
  }
  return settings;
}

/// " --set ..." that ends a warning of `axis`; empty where none is known to.
std::string advice(const TrainConfig& config, const Placement& placement,
                   const MeshWarning& warning) {
  TrainConfig other = config;
  std::string text;
  const int ranks = placement.ranks();
  for (const Setting& setting : settings_for(config, warning.axis, warning.fitting_size, ranks)) {
    set_key(other, setting.key, std::to_string(setting.value));
    text += base::str(text.empty() ? "" : " ", "--set ", setting.key, "=", setting.value);
  }
  try {
    check(other, ranks);
  } catch (const UsageError&) {
    return "";
  }
  const std::vector<MeshWarning> left = check_mesh(placement, named_mesh(other, ranks));
  const bool ends = std::none_of(left.begin(), left.end(), [&](const MeshWarning& still) {
    return still.axis == warning.axis;
  });
  return ends ? text : "";
}

}  // namespace

std::vector<std::string> layout_warnings(const TrainConfig& config, const Placement& placement) {
  std::vector<std::string> lines;
  for (const MeshWarning& warning : check_mesh(placement, named_mesh(config, placement.ranks()))) {
    std::vector<std::string> help;
    if (warning.fitting_size > 0) {
      const std::string setting = advice(config, placement, warning);
      if (!setting.empty()) help.push_back(setting);
    }
    if (!warning.placing.empty()) help.push_back(warning.placing);
    if (help.empty()) help.emplace_back("give the job hosts with more cores, or another mesh");
    lines.push_back(base::str(warning.what, ": ", base::joined(help, ", or ")));
  }
  return lines;
}

}  // namespace lockstep::plan
