/// `final.safetensors`: the logical parameters of a run and its running values, with what is needed
/// to use them again.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/models/language_model.h"
#include "lockstep/plan/train_config.h"
#include "lockstep/state/param_store.h"
#include "lockstep/train/replicas.h"
#include "lockstep/train/whole_params.h"

namespace lockstep {

struct ModelFileInfo {
  plan::TrainConfig config;
  int64_t vocab = 0;  // as resolved when the model was built
  std::string identity;
  std::string param_digest;
  int64_t step = 0;
};

/// Every logical parameter and running value once, fp32. Throws StateError; the old file stays
/// readable till then. Where parameters are divided, the other ranks of the writer's replica call
/// `help_to_save`: they are brought together one by one.
void save_model(const std::string& path, WholeParams params, const ModelFileInfo& info);
void help_to_save(WholeParams params);
/// The parameters alone, with metadata of the caller's.
void save_parameters(const std::string& path, WholeParams params,
                     std::map<std::string, std::string> metadata);

/// What the file says of itself. Throws StateError: it is not one of ours.
ModelFileInfo read_model_info(const std::string& path);

/// Fills `params`, a store of the model's own, and `running_values` from the file. Throws
/// StateError naming file and reason: another model's, cut short, or not of the digest that the
/// file states.
void load_parameters(const std::string& path, state::ParamStore& params,
                     const std::vector<NamedTensor>& running_values = {});

/// A language model with its parameters filled from the file.
struct LoadedModel {
  ModelFileInfo info;
  std::shared_ptr<models::LanguageModel> model;
  std::unique_ptr<state::ParamStore> params;
  plan::TensorPlace tensor = {};  // of the context that it runs in
  plan::ContextPlace sequence = {};
};

/// Throws StateError naming file and reason: not one of ours, another model's, cut short, or its
/// parameters do not have the digest that the file states.
/// `in_grains`: its layers are computed in the grains that it was trained with, for the same
/// bits; else in one.
LoadedModel load_model(const std::string& path, bool in_grains = true);

}  // namespace lockstep
