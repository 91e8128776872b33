/// `final.safetensors`: the logical parameters of a run, with what is needed to use them again.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "lockstep/models/language_model.h"
#include "lockstep/plan/train_config.h"
#include "lockstep/state/param_store.h"

namespace lockstep {

struct ModelFileInfo {
  plan::TrainConfig config;
  int64_t vocab = 0;  // as resolved when the model was built
  std::string identity;
  std::string param_digest;
  int64_t step = 0;
};

/// Every logical parameter once, fp32. Throws StateError; the old file stays readable till then.
/// Where parameters are divided, the other ranks of the writer's replica call `help_to_save`: units
/// are gathered one by one.
void save_model(const std::string& path, state::ParamStore& params, const ModelFileInfo& info);
void help_to_save(state::ParamStore& params);
/// The parameters alone, with metadata of the caller's.
void save_parameters(const std::string& path, state::ParamStore& params,
                     std::map<std::string, std::string> metadata);

/// A model with its parameters filled from the file.
struct LoadedModel {
  ModelFileInfo info;
  std::shared_ptr<models::LanguageModel> model;
  std::unique_ptr<state::ParamStore> params;
};

/// Throws StateError naming file and reason: not one of ours, another model's, cut short, or its
/// parameters do not have the digest that the file states.
LoadedModel load_model(const std::string& path);

}  // namespace lockstep
