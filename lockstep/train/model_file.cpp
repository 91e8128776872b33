#include "lockstep/train/model_file.h"

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/files/safetensors.h"

namespace lockstep {
namespace {

constexpr const char* kInfoKey = "lockstep";

ModelFileInfo parse_info(const std::string& path, const files::SafetensorsFile& file) {
  const auto found = file.metadata().find(kInfoKey);
  if (found == file.metadata().end()) {
    throw StateError(base::str(path, ": not a model of Lockstep: its metadata have no \"", kInfoKey,
                               "\" entry. Give a run folder or its final.safetensors."));
  }
  try {
    const auto json = nlohmann::json::parse(found->second);
    return {.config = plan::from_json(json.at("config")),
            .vocab = json.at("vocab").get<int64_t>(),
            .identity = json.at("identity").get<std::string>(),
            .param_digest = json.at("param_digest").get<std::string>(),
            .step = json.at("step").get<int64_t>()};
  } catch (const std::exception& error) {
    throw StateError(
        base::str(path, ": its \"", kInfoKey, "\" metadata cannot be read: ", error.what()));
  }
}

void require_matching(const std::string& path, const files::SafetensorsFile& file,
                      const plan::Param& param) {
  if (!file.has(param.name)) {
    throw StateError(base::str(path, ": parameter \"", param.name, "\" of the model is missing."));
  }
  const auto& info = file.info(param.name);
  if (info.dtype != "F32" || info.shape != param.shape) {
    throw StateError(base::str(path, ": parameter \"", param.name,
                               "\" has another shape or type than the model of its metadata."));
  }
}

}  // namespace

void save_model(const std::string& path, state::ParamStore& params, const ModelFileInfo& info) {
  const nlohmann::json json = {{"config", plan::to_json(info.config)},
                               {"vocab", info.vocab},
                               {"identity", info.identity},
                               {"param_digest", info.param_digest},
                               {"step", info.step}};
  save_parameters(path, params, {{kInfoKey, json.dump()}});
}

void save_parameters(const std::string& path, state::ParamStore& params,
                     std::map<std::string, std::string> metadata) {
  std::vector<files::TensorEntry> entries;
  const plan::ParamTable& table = params.table();
  for (const int p : table.by_name) {
    const plan::Param& param = table.params[static_cast<size_t>(p)];
    entries.push_back({.name = param.name,
                       .dtype = "F32",
                       .shape = param.shape,
                       .data = nullptr,
                       .bytes = param.numel * 4,
                       .bring = [&params, p] { return params.whole(p); }});
  }
  metadata.emplace("format", "pt");
  files::write_safetensors(path, entries, metadata);
  params.release_whole();
}

void help_to_save(state::ParamStore& params) {
  for (const int p : params.table().by_name) params.whole(p);
  params.release_whole();
}

LoadedModel load_model(const std::string& path) {
  const auto file = files::SafetensorsFile::open(path);
  LoadedModel loaded;
  loaded.info = parse_info(path, file);
  loaded.model = models::make_model(loaded.info.config, loaded.info.vocab);
  const auto zeros = [](const std::string&) { return plan::Init{}; };
  loaded.params = std::make_unique<state::ParamStore>(*loaded.model, loaded.model->ties(), zeros,
                                                      state::ParamStoreOptions{});
  const plan::ParamTable& table = loaded.params->table();
  for (size_t p = 0; p < table.params.size(); ++p) {
    const plan::Param& param = table.params[p];
    require_matching(path, file, param);
    file.read(param.name, loaded.params->master(static_cast<int>(p)), param.numel * 4);
  }
  if (file.names().size() != table.params.size()) {
    throw StateError(base::str(path, ": holds ", file.names().size(), " tensors, the model has ",
                               table.params.size(), "."));
  }
  const std::string digest = loaded.params->digest().text();
  if (digest != loaded.info.param_digest) {
    throw StateError(base::str(path, ": its parameters have digest ", digest, ", it states ",
                               loaded.info.param_digest, ". The file is damaged."));
  }
  return loaded;
}

}  // namespace lockstep
