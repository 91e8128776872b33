#include "lockstep/train/model_file.h"

#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/files/safetensors.h"
#include "lockstep/plan/run_layout.h"
#include "lockstep/train/param_digest.h"
#include "lockstep/train/start_weights.h"

namespace lockstep {

void save_model(const std::string& path, WholeParams params, const ModelFileInfo& info) {
  save_parameters(path, std::move(params), checkpoints::metadata_of(info));
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

std::string load_parameters(const checkpoints::Weights& weights, state::ParamStore& params,
                            const std::vector<NamedTensor>& running_values) {
  const checkpoints::WeightOrigin& origin = weights.origin();
  std::set<std::string> names;
  for (const plan::Param& param : params.table().params) names.insert(plan::logical_name(param));
  for (const NamedTensor& value : running_values) names.insert(value.name);
  if (weights.list().size() != names.size()) {
    throw StateError(base::str(origin.path, ": holds ", weights.list().size(),
                               " tensors, the model has ", names.size(), "."));
  }
  fill_from(weights, params, running_values);
  plan::Digest digest = params.digest();
  digest.add(digest_of(running_values));
  if (!origin.param_digest.empty() && digest.text() != origin.param_digest) {
    throw StateError(base::str(origin.path, ": its parameters have digest ", digest.text(),
                               ", it states ", origin.param_digest, ". The file is damaged."));
  }
  return digest.text();
}

LoadedModel load_model(const std::string& path, bool in_grains) {
  return load_model(*checkpoints::open_weights(path), in_grains);
}

LoadedModel load_model(const checkpoints::Weights& weights, bool in_grains) {
  LoadedModel loaded;
  loaded.info = weights.origin();
  const plan::TrainConfig& config = loaded.info.config;
  if (config.model.family == "resnet") {
    throw UsageError(base::str(loaded.info.path,
                               ": a residual network tells pictures apart and writes no text."));
  }
  // On one rank, which has all grains of its layers.
  const int grains = in_grains ? plan::tensor_grains_of(config) : 1;
  const int contexts = in_grains ? plan::context_grains_of(config) : 1;
  const models::ModelPart part{.chunks = {},
                               .tensor = plan::place_of(grains, 1, 0, false),
                               .sequence = plan::context_place(contexts, 1, 0)};
  loaded.model = models::make_model(config, loaded.info.vocab, part);
  const auto zeros = [](const std::string&) { return plan::Init{}; };
  state::ParamStoreOptions options;
  options.contexts = part.sequence.local;
  options.slice_of = [&](const std::string& name) { return loaded.model->slice_of(name); };
  loaded.params =
      std::make_unique<state::ParamStore>(*loaded.model, loaded.model->ties(), zeros, options);
  loaded.tensor = part.tensor;
  loaded.sequence = part.sequence;
  loaded.info.param_digest = load_parameters(weights, *loaded.params);
  return loaded;
}

}  // namespace lockstep
