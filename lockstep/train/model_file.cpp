#include "lockstep/train/model_file.h"

#include <algorithm>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/files/safetensors.h"
#include "lockstep/plan/run_layout.h"
#include "lockstep/train/param_digest.h"

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

/// The tensor `name` of the file, which the model has with this shape.
std::vector<float> values_of(const std::string& path, const files::SafetensorsFile& file,
                             const std::string& name, const std::vector<int64_t>& shape) {
  if (!file.has(name)) {
    throw StateError(base::str(path, ": \"", name, "\" of the model is missing."));
  }
  const auto& info = file.info(name);
  if (info.dtype != "F32" || info.shape != shape) {
    throw StateError(base::str(path, ": \"", name,
                               "\" has another shape or type than the model of its metadata."));
  }
  std::vector<float> values(static_cast<size_t>(info.bytes / 4));
  file.read(name, values.data(), std::ssize(values) * 4);
  return values;
}

}  // namespace

void save_model(const std::string& path, WholeParams params, const ModelFileInfo& info) {
  const nlohmann::json json = {{"config", plan::to_json(info.config)},
                               {"vocab", info.vocab},
                               {"identity", info.identity},
                               {"param_digest", info.param_digest},
                               {"step", info.step}};
  save_parameters(path, std::move(params), {{kInfoKey, json.dump()}});
}

void save_parameters(const std::string& path, WholeParams params,
                     std::map<std::string, std::string> metadata) {
  std::vector<files::TensorEntry> entries;
  for (size_t i = 0; i < params.list().size(); ++i) {
    const WholeParams::Logical& logical = params.list()[i];
    entries.push_back({.name = logical.name,
                       .dtype = "F32",
                       .shape = logical.shape,
                       .data = nullptr,
                       .bytes = logical.numel * 4,
                       .bring = [&params, i] { return params.bring(i); }});
  }
  metadata.emplace("format", "pt");
  files::write_safetensors(path, entries, metadata);
  params.release();
}

void help_to_save(WholeParams params) {
  for (size_t i = 0; i < params.list().size(); ++i) params.bring(i);
  params.release();
}

ModelFileInfo read_model_info(const std::string& path) {
  return parse_info(path, files::SafetensorsFile::open(path));
}

void load_parameters(const std::string& path, state::ParamStore& params,
                     const std::vector<NamedTensor>& running_values) {
  const auto file = files::SafetensorsFile::open(path);
  const ModelFileInfo info = parse_info(path, file);
  std::set<std::string> names;
  for (size_t p = 0; p < params.table().params.size(); ++p) {
    const plan::Param& param = params.table().params[p];
    const std::string& name = plan::logical_name(param);
    names.insert(name);
    const std::vector<float> values = values_of(path, file, name, plan::logical_shape(param));
    float* const master = params.master(static_cast<int>(p));
    for (const plan::LogicalRun& run : plan::logical_runs(param, 0, param.numel)) {
      if (run.first >= 0) std::copy_n(values.data() + run.first, run.size(), master + run.lo);
    }
  }
  for (const NamedTensor& value : running_values) {
    names.insert(value.name);
    const std::vector<float> values = values_of(path, file, value.name, value.tensor.sizes().vec());
    std::copy(values.begin(), values.end(), value.tensor.data_ptr<float>());
  }
  if (file.names().size() != names.size()) {
    throw StateError(base::str(path, ": holds ", file.names().size(), " tensors, the model has ",
                               names.size(), "."));
  }
  plan::Digest digest = params.digest();
  digest.add(digest_of(running_values));
  if (digest.text() != info.param_digest) {
    throw StateError(base::str(path, ": its parameters have digest ", digest.text(), ", it states ",
                               info.param_digest, ". The file is damaged."));
  }
}

LoadedModel load_model(const std::string& path, bool in_grains) {
  LoadedModel loaded;
  loaded.info = read_model_info(path);
  if (loaded.info.config.model.family == "resnet") {
    throw UsageError(
        base::str(path, ": a residual network tells pictures apart and writes no text."));
  }
  // On one rank, which has all grains of its layers.
  const int grains = in_grains ? plan::tensor_grains_of(loaded.info.config) : 1;
  const int contexts = in_grains ? plan::context_grains_of(loaded.info.config) : 1;
  const models::ModelPart part{.chunks = {},
                               .tensor = plan::place_of(grains, 1, 0, false),
                               .sequence = plan::context_place(contexts, 1, 0)};
  loaded.model = models::make_model(loaded.info.config, loaded.info.vocab, part);
  const auto zeros = [](const std::string&) { return plan::Init{}; };
  state::ParamStoreOptions options;
  options.contexts = part.sequence.local;
  options.slice_of = [&](const std::string& name) { return loaded.model->slice_of(name); };
  loaded.params =
      std::make_unique<state::ParamStore>(*loaded.model, loaded.model->ties(), zeros, options);
  loaded.tensor = part.tensor;
  loaded.sequence = part.sequence;
  load_parameters(path, *loaded.params);
  return loaded;
}

}  // namespace lockstep
