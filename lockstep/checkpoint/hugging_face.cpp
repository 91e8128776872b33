#include "lockstep/checkpoint/hugging_face.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/hugging_face_config.h"
#include "lockstep/checkpoint/renamed_weights.h"
#include "lockstep/files/mapped_file.h"

namespace lockstep::checkpoints {
namespace {
namespace fs = std::filesystem;

constexpr const char* kHead = "lm_head.weight";

/// Masks and angles that older programs saved with the weights.
bool is_buffer(const std::string& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with("rotary_emb.inv_freq");
}

}  // namespace

bool is_hugging_face(const std::string& folder) {
  const std::string path = (fs::path(folder) / "config.json").string();
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  try {
    const files::MappedFile file(path);
    const auto json = nlohmann::json::parse(file.text(), nullptr, /*allow_exceptions=*/false);
    return json.is_object() && json.contains("model_type");
  } catch (const std::system_error&) {
    return false;
  }
}

std::unique_ptr<Weights> open_hugging_face(const std::string& folder) {
  WeightOrigin origin = read_hugging_face_config((fs::path(folder) / "config.json").string());
  std::unique_ptr<TensorSource> source = open_tensor_folder(folder);
  const plan::TrainConfig& config = origin.config;
  const bool gpt2 = config.model.family == "gpt2";
  origin.path = folder;
  origin.kind = gpt2 ? "Hugging Face GPT-2" : "Hugging Face Llama";
  if (config.model.layers > std::ssize(source->tensors())) {
    throw StateError(base::str(folder, ": ", source->tensors().size(), " tensors are too few for ",
                               config.model.layers, " layers."));
  }
  const std::string prefix = source->has("wte.weight") ? "" : "transformer.";
  const TensorTable table = gpt2 ? gpt2_table(config, origin.vocab, Linears::in_out, prefix)
                                 : llama_table(config, origin.vocab);
  const std::string embedding = table.front().name;
  const bool tied = config.model.tied;
  if (tied && source->has(kHead) && source->has(embedding)) {
    require_same_values(*source, kHead, embedding);
  }
  return renamed_weights(
      std::move(origin), std::move(source), table,
      [tied](const std::string& name) { return is_buffer(name) || (tied && name == kHead); });
}

}  // namespace lockstep::checkpoints
