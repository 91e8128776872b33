#include "lockstep/cli/resume.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/checkpoint/reader.h"
#include "lockstep/cli/run_folder.h"
#include "lockstep/plan/resume_rules.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

bool names_a_path(const plan::TrainConfig& config) {
  return config.run.resume != "auto" && config.run.resume != "never";
}

plan::TrainConfig settings_of_run(const std::string& folder) {
  const std::string path = folder + "/config.json";
  try {
    return plan::from_json(nlohmann::json::parse(read_file(path)));
  } catch (const nlohmann::json::exception& error) {
    throw StateError(base::str(path, " cannot be used: ", error.what(), "."));
  } catch (const UsageError& error) {
    throw StateError(base::str(path, " cannot be used: ", error.what()));
  }
}

void take(ResumePoint& point, const std::string& folder) {
  const checkpoints::Manifest manifest = checkpoints::read_manifest(folder);
  point.checkpoint = folder;
  point.step = manifest.step;
  point.world = manifest.world;
  point.saved = manifest.config;
}

/// The newest checkpoint of the run; nothing changes where there is none.
void take_newest(ResumePoint& point, bool fall_back) {
  const std::vector<checkpoints::Found> found = checkpoints::complete_checkpoints(point.run_folder);
  for (size_t i = 0; i < found.size(); ++i) {
    try {
      // As the ranks will (worker/resume_from.h): what is damaged is passed over by both.
      if (fall_back) checkpoints::Reader(found[i].folder).verify();
      return take(point, found[i].folder);
    } catch (const StateError& error) {
      if (fall_back && i + 1 < found.size()) continue;
      throw StateError(error.what() + checkpoints::hint_at_older(found, i));
    }
  }
}

std::string what_helps(const std::string& path) {
  std::error_code error;
  const std::string in_runs = (fs::path("runs") / path).string();
  if (!fs::exists(path, error) && fs::is_directory(in_runs, error)) {
    return base::str("\n  Did you mean ", in_runs, "?");
  }
  if (!fs::exists(path, error)) return "";
  return base::str("\n  Weights alone are what a new run begins with: --from ", path,
                   " in the place of --resume.");
}

}  // namespace

ResumePoint find_resume_point(const std::string& path, bool fall_back) {
  ResumePoint point;
  point.asked = path;
  // Not "runs/a/": with a slash at the end the folder has no name.
  const fs::path given(path);
  const std::string folder = (given.has_filename() ? given : given.parent_path()).string();
  std::error_code error;
  if (checkpoints::is_checkpoint(folder)) {
    take(point, fs::absolute(folder).string());
    point.settings = point.saved;
    return point;
  }
  if (!fs::is_regular_file(fs::path(folder) / "config.json", error)) {
    throw UsageError(
        base::str("cannot go on from ", path, ": it is ",
                  fs::exists(path, error) ? "neither a run folder nor a checkpoint." : "not there.",
                  what_helps(path)));
  }
  point.run_folder = folder;
  point.settings = settings_of_run(folder);
  point.saved = point.settings;
  take_newest(point, fall_back);
  if (point.checkpoint.empty() && names_a_path(point.settings)) {
    take(point, point.settings.run.resume);
  }
  return point;
}

Start resolve_start(ConfigSources sources) {
  Start start;
  start.resolved = resolve_config(sources);
  plan::TrainConfig& config = start.resolved.config;
  if (!names_a_path(config)) {
    sources.model = config.run.from;
    if (!sources.model.empty()) start.resolved = resolve_config(sources);
    return start;
  }
  const std::string asked = config.run.resume;
  start.from = find_resume_point(asked, config.checkpoint.fall_back);
  if (sources.preset.empty() && sources.file.empty()) {
    sources.base = ConfigSources::Base{.config = start.from->settings, .origin = "run " + asked};
    start.resolved = resolve_config(sources);
  }
  const ResumePoint& from = *start.from;
  if (!config.run.from.empty() && config.run.from != from.saved.run.from) {
    throw UsageError(base::str("run.from = \"", config.run.from,
                               "\" begins a run, and run.resume "
                               "= \"",
                               asked, "\" goes on with one.\n  Leave out one of the two."));
  }
  if (config.run.steps < from.step) {
    throw UsageError(base::str("run.steps = ", config.run.steps, ", but ", asked, " has made ",
                               from.step,
                               " steps.\n  To begin a run at an older checkpoint: "
                               "--resume RUN/checkpoints/step_N"));
  }
  plan::keep_grains(config, from.saved);
  plan::check_resume(from.saved, config, asked);
  // The folder says what to go on from, now and after a restart; a new one does not know yet.
  if (from.run_folder.empty()) {
    config.run.resume = from.checkpoint;
  } else {
    config.run.resume = names_a_path(from.settings) ? from.settings.run.resume : "auto";
  }
  return start;
}

bool is_over(const ResumePoint& from, const plan::TrainConfig& config) {
  if (from.run_folder.empty()) return false;
  std::error_code error;
  const std::string summary = from.run_folder + "/summary.json";
  if (!fs::exists(summary, error) || !fs::exists(from.run_folder + "/final.safetensors", error)) {
    return false;
  }
  const auto json = nlohmann::json::parse(read_file(summary), nullptr, /*allow_exceptions=*/false);
  const int64_t steps = json.is_object() ? json.value("steps", int64_t{-1}) : -1;
  if (steps < config.run.steps) return false;
  // Stopped in the evaluation behind its last step, which can be made from what was saved there.
  return !json.value("stopped", false) || from.step < config.run.steps;
}

std::string describe(const ResumePoint& from, const plan::TrainConfig& config) {
  if (from.checkpoint.empty()) return "has no checkpoint: it begins anew";
  return base::str(from.run_folder.empty() ? "begins" : "goes on", " after step ", from.step,
                   " of ", config.run.steps, " (", from.checkpoint, ")");
}

}  // namespace lockstep::cli
