#include "lockstep/cli/checkpoint_look.h"

#include <iostream>
#include <map>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/checkpoint/reader.h"
#include "lockstep/cli/arguments.h"
#include "lockstep/cli/text_table.h"

namespace lockstep::cli {
namespace {

using checkpoints::Manifest;
using Json = nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;

void print(const Json& json) {
  std::cout << json.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
}

/// Of the settings that differ from what they are by default: key and value.
std::vector<std::pair<std::string, std::string>> changed_settings(const plan::TrainConfig& config) {
  const plan::TrainConfig defaults;
  std::vector<std::pair<std::string, std::string>> changed;
  for (const plan::ConfigKey& key : plan::config_keys()) {
    const std::string value = plan::get_key(config, key.name);
    if (value != plan::get_key(defaults, key.name)) changed.emplace_back(key.name, value);
  }
  return changed;
}

/// "4 ranks, parallel.shard zero2": whose parts the files are.
std::string layout_text(const Manifest& manifest) {
  std::string text = base::str(manifest.world, manifest.world == 1 ? " rank" : " ranks");
  for (const auto& [key, value] : changed_settings(manifest.config)) {
    if (key.starts_with("parallel.")) text += ", " + key + " " + value;
  }
  return text;
}

/// By kind: tensors and elements.
struct KindSum {
  int64_t tensors = 0;
  int64_t elements = 0;
};

std::map<std::string, KindSum> sums_of(const checkpoints::Index& index) {
  std::map<std::string, KindSum> sums;
  for (const checkpoints::SavedTensor& tensor : index.tensors) {
    KindSum& sum = sums[tensor.kind];
    ++sum.tensors;
    sum.elements += tensor.numel();
  }
  return sums;
}

Json json_of(const checkpoints::Reader& reader, bool with_tensors) {
  const Manifest& manifest = reader.manifest();
  Json json = {{"folder", reader.folder()},
               {"step", manifest.step},
               {"saved_at", manifest.saved_at},
               {"identity", manifest.identity},
               {"param_digest", manifest.param_digest},
               {"vocab", manifest.vocab},
               {"ranks", manifest.world},
               {"bytes", manifest.bytes()},
               {"kinds", Json::object()},
               {"files", Json::array()},
               {"state", manifest.state},
               {"settings", Json::object()}};
  for (const auto& [kind, sum] : sums_of(reader.index())) {
    json["kinds"][kind] = {
        {"tensors", sum.tensors}, {"elements", sum.elements}, {"bytes", sum.elements * 4}};
  }
  for (const checkpoints::PartFile& part : manifest.files) {
    json["files"].push_back(
        {{"name", part.name}, {"bytes", part.bytes}, {"elements", part.elements}});
  }
  for (const auto& [key, value] : changed_settings(manifest.config)) {
    json["settings"][key] = plan::get_value(manifest.config, key);
  }
  if (!with_tensors) return json;
  json["tensors"] = Json::array();
  for (const checkpoints::SavedTensor& tensor : reader.index().tensors) {
    json["tensors"].push_back({{"kind", tensor.kind},
                               {"name", tensor.name},
                               {"shape", tensor.shape},
                               {"bytes", tensor.numel() * 4},
                               {"grains", tensor.grains},
                               {"slices", tensor.slices.size()}});
  }
  return json;
}

void print_tensors(const checkpoints::Index& index) {
  Rows rows = {{"kind", "tensor", "shape", "bytes", "grains", "slices"}};
  for (const checkpoints::SavedTensor& tensor : index.tensors) {
    rows.push_back({tensor.kind, tensor.name, checkpoints::shape_text(tensor.shape),
                    base::with_commas(tensor.numel() * 4), std::to_string(tensor.grains),
                    std::to_string(tensor.slices.size())});
  }
  std::cout << "\n" << table_text(rows);
}

void print_inspected(const checkpoints::Reader& reader, bool with_tensors) {
  const Manifest& manifest = reader.manifest();
  Rows kinds = {{"kind", "tensors", "elements", "bytes"}};
  for (const auto& [kind, sum] : sums_of(reader.index())) {
    kinds.push_back({kind, std::to_string(sum.tensors), base::with_commas(sum.elements),
                     base::with_commas(sum.elements * 4)});
  }
  Rows files = {{"file", "values", "bytes"}};
  for (const checkpoints::PartFile& part : manifest.files) {
    files.push_back({part.name, base::with_commas(part.elements), base::with_commas(part.bytes)});
  }
  Rows settings = {{"setting", "value (others as by default)"}};
  for (const auto& [key, value] : changed_settings(manifest.config)) {
    settings.push_back({key, value});
  }
  std::cout << "checkpoint  " << reader.folder() << "\n"
            << "step        " << manifest.step << " of " << manifest.config.run.steps
            << ", saved at " << manifest.saved_at << "\n"
            << "saved by    " << layout_text(manifest) << "\n"
            << "vocabulary  " << base::with_commas(manifest.vocab) << "\n"
            << "identity    " << manifest.identity << "\n"
            << "digest      " << manifest.param_digest << "\n"
            << "size        " << base::bytes_text(manifest.bytes()) << "\n\n"
            << table_text(kinds) << "\n"
            << table_text(files) << "\n"
            << table_text(settings);
  if (with_tensors) print_tensors(reader.index());
}

}  // namespace

int checkpoint_ls(const std::vector<std::string>& args) {
  std::string run;
  bool as_json = false;
  CLI::App app("A run's complete checkpoints, newest first.", "lockstep checkpoint ls");
  app.add_option("RUN", run, "a run folder")->required();
  app.add_flag("--json", as_json, "one object on stdout");
  if (!parse_arguments(app, args)) return 0;

  if (checkpoints::is_checkpoint(run)) {
    throw UsageError(base::str(run,
                               " is a checkpoint.\n  What is in it: lockstep checkpoint inspect ",
                               run, "\n  All of its run: lockstep checkpoint ls RUN"));
  }
  checkpoints::checkpoint_at(run);  // says what is wrong with a folder that has none
  Json list = Json::array();
  Rows rows = {{"step", "saved at", "ranks", "files", "bytes", "digest"}};
  for (const checkpoints::Found& found : checkpoints::complete_checkpoints(run)) {
    Json& entry = list.emplace_back(Json{{"folder", found.folder}, {"step", found.step}});
    try {
      const Manifest manifest = checkpoints::read_manifest(found.folder);
      entry["saved_at"] = manifest.saved_at;
      entry["ranks"] = manifest.world;
      entry["files"] = manifest.files.size();
      entry["bytes"] = manifest.bytes();
      entry["param_digest"] = manifest.param_digest;
      rows.push_back({std::to_string(found.step), manifest.saved_at, std::to_string(manifest.world),
                      std::to_string(manifest.files.size()), base::with_commas(manifest.bytes()),
                      manifest.param_digest});
    } catch (const StateError& error) {
      entry["damaged"] = error.what();
      rows.push_back({std::to_string(found.step), "damaged"});
    }
  }
  if (as_json) {
    print({{"run", run}, {"checkpoints", list}});
  } else {
    std::cout << table_text(rows);
  }
  return 0;
}

int checkpoint_inspect(const std::vector<std::string>& args) {
  std::string path;
  bool as_json = false, with_tensors = false;
  CLI::App app("What is in a checkpoint, and of which run it is.", "lockstep checkpoint inspect");
  app.add_option("CHECKPOINT|RUN", path, "a checkpoint, or a run: its newest one")->required();
  app.add_flag("--tensors", with_tensors, "every tensor, too");
  app.add_flag("--json", as_json, "one object on stdout");
  if (!parse_arguments(app, args)) return 0;

  const checkpoints::Reader reader(checkpoints::checkpoint_at(path));
  if (as_json) {
    print(json_of(reader, with_tensors));
  } else {
    print_inspected(reader, with_tensors);
  }
  return 0;
}

}  // namespace lockstep::cli
