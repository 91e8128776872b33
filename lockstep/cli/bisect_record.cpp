#include "lockstep/cli/bisect_record.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <fstream>
#include <limits>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/cli/run_folder.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// JSON has no word for inf and nan: they are null.
double number_of(const Json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

bool same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

plan::TrainConfig read_settings(const std::string& path) {
  try {
    return plan::from_json(Json::parse(read_file(path)));
  } catch (const Json::exception& error) {
    throw StateError(base::str(path, " cannot be used: ", error.what(), "."));
  } catch (const UsageError& error) {
    throw StateError(base::str(path, " cannot be used: ", error.what()));
  }
}

/// Of "config_before_step_20.json" 20; -1: it is none.
int64_t last_step_in(const std::string& name) {
  const std::string before = "config_before_step_", behind = ".json";
  if (!name.starts_with(before) || !name.ends_with(behind)) return -1;
  const std::string digits =
      name.substr(before.size(), name.size() - before.size() - behind.size());
  const bool number = !digits.empty() && digits.size() < 18 &&
                      digits.find_first_not_of("0123456789") == std::string::npos;
  return number ? std::stoll(digits) : -1;
}

/// Each file holds up to the step in its name, from where the one before ends.
std::map<int64_t, plan::TrainConfig> all_settings(const std::string& folder) {
  std::map<int64_t, std::string> until;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const int64_t step = last_step_in(entry->path().filename().string());
    if (step >= 0) until[step] = entry->path().string();
  }
  std::map<int64_t, plan::TrainConfig> settings;
  int64_t after = 0;
  for (const auto& [step, path] : until) {
    settings[after] = read_settings(path);
    after = step;
  }
  settings[after] = read_settings(folder + "/config.json");
  return settings;
}

void add_start(RunRecord& run, const std::string& folder) {
  try {
    const checkpoints::Manifest manifest = checkpoints::read_manifest(folder);
    run.starts.push_back({.step = manifest.step,
                          .folder = folder,
                          .param_digest = manifest.param_digest,
                          .world = manifest.world});
    run.identity = manifest.identity;
  } catch (const StateError&) {
    // `lockstep checkpoint verify` says what is wrong with it; there are others to begin at.
  }
}

void add_starts(RunRecord& run) {
  const std::string& resume = run.settings.begin()->second.run.resume;
  if (resume == "auto" || resume == "never") {
    run.starts.push_back({.step = 0, .folder = "", .param_digest = "", .world = 0});
  } else {
    add_start(run, resume);  // another run's
  }
  std::vector<checkpoints::Found> found = checkpoints::complete_checkpoints(run.folder);
  std::reverse(found.begin(), found.end());
  for (const checkpoints::Found& one : found) add_start(run, one.folder);
}

void add_summary(RunRecord& run) {
  std::ifstream in(run.folder + "/summary.json");
  const Json summary = Json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!summary.is_object()) return;  // it has not ended
  run.identity = summary.value("identity", run.identity);
  const auto ranks = summary.find("ranks");
  if (ranks != summary.end() && ranks->is_array()) run.ranks = static_cast<int>(ranks->size());
  const auto last = run.steps.find(summary.value("steps", int64_t{-1}));
  if (last != run.steps.end() && last->second.param_digest.empty()) {
    last->second.param_digest = summary.value("param_digest", "");
  }
}

}  // namespace

std::string first_unequal(const StepFigures& a, const StepFigures& b) {
  if (!same_bits(a.loss, b.loss)) return "loss";
  if (!same_bits(a.grad_norm, b.grad_norm)) return "grad_norm";
  const bool known = !a.param_digest.empty() && !b.param_digest.empty();
  return known && a.param_digest != b.param_digest ? "param_digest" : "";
}

const plan::TrainConfig& RunRecord::settings_of(int64_t step) const {
  auto at = settings.lower_bound(step);  // those that hold behind `step` or later
  if (at != settings.begin()) --at;
  return at->second;
}

int RunRecord::ranks_of(int64_t step) const {
  for (const RunStart& start : starts) {
    if (start.step >= step && start.world > 0) return start.world;
  }
  if (ranks > 0) return ranks;
  const auto newest = std::find_if(starts.rbegin(), starts.rend(),
                                   [](const RunStart& start) { return start.world > 0; });
  return newest == starts.rend() ? 1 : newest->world;
}

int64_t RunRecord::alike_until(int64_t step) const {
  const auto next = settings.upper_bound(step);
  int64_t until = next == settings.end() ? std::numeric_limits<int64_t>::max() : next->first;
  for (const RunStart& start : starts) {
    if (start.step <= step || start.step >= until) continue;
    if (ranks_of(start.step + 1) != ranks_of(step + 1)) until = start.step;
  }
  return until;
}

const RunStart* RunRecord::start_before(int64_t step) const {
  const RunStart* found = nullptr;
  for (const RunStart& start : starts) {
    if (start.step <= step) found = &start;
  }
  return found;
}

const RunStart* RunRecord::start_at(int64_t step) const {
  const RunStart* const start = start_before(step);
  return start != nullptr && start->step == step ? start : nullptr;
}

std::map<int64_t, StepFigures> read_figures(const std::string& path) {
  std::ifstream in(path);
  std::map<int64_t, StepFigures> figures;
  int64_t number = 0;
  for (std::string text; std::getline(in, text);) {
    ++number;
    if (in.eof()) break;  // without its line feed: the run was killed while writing it
    try {
      const Json line = Json::parse(text);
      if (!line.contains("loss")) continue;  // of an evaluation
      figures[line.at("step").get<int64_t>()] = {.loss = number_of(line.at("loss")),
                                                 .grad_norm = number_of(line.at("grad_norm")),
                                                 .param_digest = line.value("param_digest", "")};
    } catch (const Json::exception& error) {
      throw StateError(base::str(path, ", line ", number, ": ", error.what(), "."));
    }
  }
  return figures;
}

RunRecord read_run(const std::string& given) {
  const fs::path path(given);
  RunRecord run;
  run.folder = (path.has_filename() ? path : path.parent_path()).string();
  std::error_code error;
  if (!fs::is_regular_file(run.folder + "/config.json", error)) {
    const std::string in_runs = (fs::path("runs") / given).string();
    throw UsageError(base::str(given, " is no run folder: it has no config.json.",
                               fs::is_directory(in_runs, error)
                                   ? base::str("\n  Did you mean ", in_runs, "?")
                                   : std::string()));
  }
  run.settings = all_settings(run.folder);
  run.steps = read_figures(run.folder + "/metrics.jsonl");
  add_starts(run);
  add_summary(run);
  if (run.steps.empty()) {
    throw StateError(
        base::str(run.folder, "/metrics.jsonl has no step: there is nothing to compare."));
  }
  return run;
}

}  // namespace lockstep::cli
