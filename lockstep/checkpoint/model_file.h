/// A model file of Lockstep (`final.safetensors`): the logical tensors under their own names, fp32,
/// and what the file says of itself.
///
///   metadata "lockstep_sha256": of the text of the next
///   metadata "lockstep": JSON {config, vocab, identity, param_digest, step}, and
///   "knows_tokenizer": false of a model that was brought in without one
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "lockstep/checkpoint/weights.h"
#include "lockstep/files/safetensors.h"
#include "lockstep/plan/train_config.h"

namespace lockstep::checkpoints {

struct ModelFileInfo {
  plan::TrainConfig config;
  int64_t vocab = 0;     // as resolved when the model was built
  std::string identity;  // of the run; empty: of a model that was brought in
  std::string param_digest;
  int64_t step = 0;
  bool knows_tokenizer = true;  // that data.tokenizer is whose ids the model's are
};

/// The metadata that say so.
std::map<std::string, std::string> metadata_of(const ModelFileInfo& info);
bool is_model_file(const files::SafetensorsFile& file);
/// Throws StateError naming the file: it is not one of ours, or its metadata are damaged.
ModelFileInfo model_file_info(const files::SafetensorsFile& file);

/// Throws StateError as `model_file_info`, and for a tensor that is not fp32.
std::unique_ptr<Weights> open_model_file(files::SafetensorsFile file);

/// Writes `weights` as a model file, whole or not at all, a tensor in memory at a time. Throws
/// StateError.
void write_model_file(const std::string& path, const Weights& weights);

}  // namespace lockstep::checkpoints
