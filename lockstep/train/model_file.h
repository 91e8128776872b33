/// `final.safetensors`: the logical parameters of a run and its running values, with what is needed
/// to use them again; and models in memory, filled from a file of ours or of another program.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/checkpoint/model_file.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/models/language_model.h"
#include "lockstep/state/param_store.h"
#include "lockstep/train/replicas.h"
#include "lockstep/train/whole_params.h"

namespace lockstep {

using checkpoints::ModelFileInfo;

/// Every logical parameter and running value once, fp32. Throws StateError; the old file stays
/// readable till then. Where parameters are divided, the other ranks of the writer's replica call
/// `help_to_save`: they are brought together one by one.
void save_model(const std::string& path, WholeParams params, const ModelFileInfo& info);
void help_to_save(WholeParams params);
/// The parameters alone, with metadata of the caller's.
void save_parameters(const std::string& path, WholeParams params,
                     std::map<std::string, std::string> metadata);

/// Fills `params`, a store of the model's own, and `running_values` from a file that holds these
/// and no more; the result is their digest. Throws StateError naming file and reason: another
/// model's, cut short, or not of the digest that the file states.
std::string load_parameters(const checkpoints::Weights& weights, state::ParamStore& params,
                            const std::vector<NamedTensor>& running_values = {});

/// A language model with its parameters filled from the file.
struct LoadedModel {
  checkpoints::WeightOrigin info;  // with the parameters' digest, whether the file states it or not
  std::shared_ptr<models::LanguageModel> model;
  std::unique_ptr<state::ParamStore> params;
  plan::TensorPlace tensor = {};  // of the context that it runs in
  plan::ContextPlace sequence = {};
};

/// Of anything that checkpoints::open_weights takes. Throws StateError naming file and reason: no
/// model that is known, cut short, or its parameters do not have the digest that the file states.
/// `in_grains`: its layers are computed in the grains that it was trained with, for the same
/// bits; else in one.
LoadedModel load_model(const checkpoints::Weights& weights, bool in_grains = true);
LoadedModel load_model(const std::string& path, bool in_grains = true);

}  // namespace lockstep
