#include "lockstep/checkpoint/model_file.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/shallow_json.h"
#include "lockstep/base/str.h"
#include "lockstep/files/sha256.h"

namespace lockstep::checkpoints {
namespace {

constexpr const char* kInfoKey = "lockstep";
/// Of the text under kInfoKey. The digest of the values says nothing of the settings, and a head
/// more or less is another model of the same tensors.
constexpr const char* kSumKey = "lockstep_sha256";

class ModelFileWeights final : public Weights {
 public:
  explicit ModelFileWeights(files::SafetensorsFile file) : file_(std::move(file)) {
    ModelFileInfo info = model_file_info(file_);
    origin_ = {.path = file_.path(),
               .kind = "model file of Lockstep",
               .config = std::move(info.config),
               .vocab = info.vocab,
               .step = info.step,
               .param_digest = std::move(info.param_digest),
               .identity = std::move(info.identity),
               .knows_tokenizer = info.knows_tokenizer,
               .notes = {}};
    for (const std::string& name : file_.names()) {
      const auto& tensor = file_.info(name);
      if (tensor.dtype != "F32") {
        throw StateError(base::str(file_.path(), ": \"", name, "\" is ", tensor.dtype,
                                   "; a model file of Lockstep holds F32."));
      }
      list_.push_back({.name = name, .shape = tensor.shape, .numel = tensor.bytes / 4});
    }
    std::sort(list_.begin(), list_.end(),
              [](const WeightInfo& a, const WeightInfo& b) { return a.name < b.name; });
  }

  const WeightOrigin& origin() const override { return origin_; }
  const std::vector<WeightInfo>& list() const override { return list_; }
  void read(const std::string& name, int64_t first, int64_t count, float* out) const override {
    file_.read_part(name, first * 4, count * 4, out);
  }

 private:
  files::SafetensorsFile file_;
  WeightOrigin origin_;
  std::vector<WeightInfo> list_;
};

}  // namespace

std::map<std::string, std::string> metadata_of(const ModelFileInfo& info) {
  nlohmann::json json = {{"config", plan::to_json(info.config)},
                         {"vocab", info.vocab},
                         {"identity", info.identity},
                         {"param_digest", info.param_digest},
                         {"step", info.step}};
  if (!info.knows_tokenizer) json["knows_tokenizer"] = false;
  const std::string text = json.dump();
  return {{kInfoKey, text}, {kSumKey, files::sha256_hex(text)}};
}

bool is_model_file(const files::SafetensorsFile& file) {
  return file.metadata().contains(kInfoKey);
}

ModelFileInfo model_file_info(const files::SafetensorsFile& file) {
  const auto found = file.metadata().find(kInfoKey);
  if (found == file.metadata().end()) {
    throw StateError(base::str(file.path(), ": not a model of Lockstep: its metadata have no \"",
                               kInfoKey, "\" entry. Give a run folder or its final.safetensors."));
  }
  const auto sum = file.metadata().find(kSumKey);
  if (sum == file.metadata().end() || sum->second != files::sha256_hex(found->second)) {
    throw StateError(base::str(file.path(), ": its \"", kInfoKey, "\" metadata do not have the ",
                               "sha256 that the file states. The file is damaged."));
  }
  try {
    const auto json = nlohmann::json::parse(base::shallow_json(found->second));
    return {.config = plan::from_json(json.at("config")),
            .vocab = json.at("vocab").get<int64_t>(),
            .identity = json.at("identity").get<std::string>(),
            .param_digest = json.at("param_digest").get<std::string>(),
            .step = json.at("step").get<int64_t>(),
            .knows_tokenizer = json.value("knows_tokenizer", true)};
  } catch (const std::exception& error) {
    throw StateError(
        base::str(file.path(), ": its \"", kInfoKey, "\" metadata cannot be read: ", error.what()));
  }
}

std::unique_ptr<Weights> open_model_file(files::SafetensorsFile file) {
  return std::make_unique<ModelFileWeights>(std::move(file));
}

void write_model_file(const std::string& path, const Weights& weights) {
  const WeightOrigin& origin = weights.origin();
  std::vector<float> values;
  std::vector<files::TensorEntry> entries;
  for (const WeightInfo& tensor : weights.list()) {
    entries.push_back({.name = tensor.name,
                       .dtype = "F32",
                       .shape = tensor.shape,
                       .data = nullptr,
                       .bytes = tensor.numel * 4,
                       .bring = [&values, &weights, &tensor]() -> const void* {
                         values.resize(static_cast<size_t>(tensor.numel));
                         weights.read(tensor.name, 0, tensor.numel, values.data());
                         return values.data();
                       }});
  }
  std::map<std::string, std::string> metadata =
      metadata_of({.config = origin.config,
                   .vocab = origin.vocab,
                   .identity = origin.identity,
                   .param_digest = digest_of(weights).text(),
                   .step = origin.step,
                   .knows_tokenizer = origin.knows_tokenizer});
  metadata.emplace("format", "pt");
  files::write_safetensors(path, entries, metadata);
}

}  // namespace lockstep::checkpoints
