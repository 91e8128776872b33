#include "lockstep/checkpoint/weights.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/checkpoint_weights.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/checkpoint/hugging_face.h"
#include "lockstep/checkpoint/llmc.h"
#include "lockstep/checkpoint/model_file.h"
#include "lockstep/checkpoint/nanogpt.h"
#include "lockstep/files/mapped_file.h"
#include "lockstep/files/other_formats.h"

namespace lockstep::checkpoints {
namespace {
namespace fs = std::filesystem;

/// Of a file that could run code while it is read: what the user can do who trusts it.
[[noreturn]] void refuse_code(const std::string& path, const std::string& what) {
  throw StateError(base::str(
      path, ": it is ", what, ". Reading one can run code, so Lockstep reads none.",
      "\n  If you trust the file, these lines of your own Python make it a safetensors file:",
      "\n    import torch; from safetensors.torch import save_file", "\n    file = torch.load(\"",
      path, "\", map_location=\"cpu\"); tensors = file.get(\"model\", file)",
      "\n    save_file({name: t.clone() for name, t in tensors.items()}, \"model.safetensors\", "
      "{\"format\": \"pt\"})",
      "\n  nanoGPT's wants {\"n_head\": \"N\"} in the last argument, Hugging Face's its "
      "config.json "
      "beside it."));
}

std::string code_in(const std::string& path) {
  try {
    return files::code_carrying_format(files::MappedFile(path).text());
  } catch (const std::system_error&) {
    return "";  // who reads it will say so
  }
}

bool is_gguf(const std::string& path) {
  try {
    return files::MappedFile(path).text().starts_with("GGUF");
  } catch (const std::system_error&) {
    return false;
  }
}

std::unique_ptr<Weights> open_folder(const std::string& path) {
  std::error_code error;
  const auto in = [&](const char* name) { return (fs::path(path) / name).string(); };
  if (is_hugging_face(path)) {
    const bool safe = fs::is_regular_file(in("model.safetensors"), error) ||
                      fs::is_regular_file(in("model.safetensors.index.json"), error);
    const std::string pickle = in("pytorch_model.bin");
    if (!safe && fs::is_regular_file(pickle, error)) refuse_code(pickle, code_in(pickle));
    return open_hugging_face(path);
  }
  if (is_checkpoint(path)) return open_checkpoint(path);
  const std::vector<Found> saved = complete_checkpoints(path);
  const std::string final_file = in("final.safetensors");
  if (fs::is_regular_file(final_file, error)) {
    auto weights = open_model_file(files::SafetensorsFile::open(final_file));
    if (saved.empty() || saved.front().step <= weights->origin().step) return weights;
  }
  if (!saved.empty()) return open_checkpoint(saved.front().folder);
  throw StateError(base::str(path,
                             ": this folder holds no model: no final.safetensors of a run (it is "
                             "written at the run's end), no checkpoint, and no config.json of a "
                             "model of Hugging Face."));
}

std::unique_ptr<Weights> open_file(const std::string& path, const OpenOptions& options) {
  if (is_llmc_model(path)) return open_llmc(path);
  if (const std::string code = code_in(path); !code.empty()) refuse_code(path, code);
  if (is_gguf(path)) {
    throw StateError(base::str(path,
                               ": it is a GGUF file. Those are written for llama.cpp and not "
                               "read; the model that it was made from is."));
  }
  files::SafetensorsFile file = files::SafetensorsFile::open(path);
  if (is_model_file(file)) return open_model_file(std::move(file));
  return open_nanogpt(file, options);
}

}  // namespace

const WeightInfo& Weights::info(const std::string& name) const {
  const auto& all = list();
  const auto found = std::lower_bound(
      all.begin(), all.end(), name,
      [](const WeightInfo& tensor, const std::string& wanted) { return tensor.name < wanted; });
  if (found != all.end() && found->name == name) return *found;
  std::vector<std::string> names;
  for (const WeightInfo& tensor : all) names.push_back(tensor.name);
  const std::string near = base::nearest(name, names);
  throw StateError(
      base::str(origin().path, " has no tensor \"", name, "\".",
                near.empty() ? "" : base::str(" The nearest name is \"", near, "\".")));
}

bool Weights::has(const std::string& name) const {
  const auto& all = list();
  return std::binary_search(
      all.begin(), all.end(), WeightInfo{.name = name, .shape = {}},
      [](const WeightInfo& a, const WeightInfo& b) { return a.name < b.name; });
}

std::unique_ptr<Weights> open_weights(const std::string& path, const OpenOptions& options) {
  std::error_code error;
  if (fs::is_directory(path, error)) return open_folder(path);
  if (fs::exists(path, error)) return open_file(path, options);
  const std::string in_runs = (fs::path("runs") / path).string();
  throw StateError(base::str("there is no run, folder or file ", path, ".",
                             fs::is_directory(in_runs, error)
                                 ? base::str("\n  Did you mean ", in_runs, "?")
                                 : std::string()));
}

void prove(const Weights& weights) {
  const WeightOrigin& origin = weights.origin();
  if (origin.param_digest.empty()) return;
  const std::string digest = digest_of(weights).text();
  if (digest == origin.param_digest) return;
  throw StateError(base::str(origin.path, ": its parameters have digest ", digest, ", it states ",
                             origin.param_digest, ". The file is damaged."));
}

void require_same_model(const Weights& weights, const plan::TrainConfig& config, int64_t vocab) {
  const WeightOrigin& origin = weights.origin();
  const plan::TrainConfig& theirs = origin.config;
  const auto fail = [&](const std::string& what, const std::string& ours,
                        const std::string& of_file) {
    throw StateError(base::str(origin.path, " (", origin.kind, "): ", what, " is ", of_file,
                               " there, but ", ours,
                               " in this run.\n  Settings of the model come "
                               "from the weights with lockstep train --from PATH alone."));
  };
  std::vector<std::string> keys = {"model.family", "model.layers", "model.width"};
  const bool decoder = config.model.family == "gpt2" || config.model.family == "llama";
  if (decoder) keys.insert(keys.end(), {"model.heads", "model.tied", "model.norm_eps"});
  if (config.model.family != "llama") {
    keys.insert(keys.end(), {"model.context", "model.bias"});
  } else {
    keys.emplace_back("model.rope_theta");
  }
  for (const std::string& key : keys) {
    const std::string ours = plan::get_key(config, key), of_file = plan::get_key(theirs, key);
    if (ours != of_file) fail(key, ours, of_file);
  }
  const auto kv_heads = [](const plan::TrainConfig& of) {
    return of.model.kv_heads > 0 ? of.model.kv_heads : of.model.heads;
  };
  if (kv_heads(config) != kv_heads(theirs)) {
    fail("model.kv_heads", std::to_string(kv_heads(config)), std::to_string(kv_heads(theirs)));
  }
  if (plan::feed_forward_width(config) != plan::feed_forward_width(theirs)) {
    fail("model.ffn", std::to_string(plan::feed_forward_width(config)),
         std::to_string(plan::feed_forward_width(theirs)));
  }
  if (vocab != origin.vocab) {
    fail("the vocabulary", std::to_string(vocab), std::to_string(origin.vocab));
  }
}

void take_model_settings(const Weights& weights, plan::TrainConfig& config) {
  const WeightOrigin& origin = weights.origin();
  config.model = origin.config.model;
  if (origin.knows_tokenizer) config.data.tokenizer = origin.config.data.tokenizer;
  if (plan::resolved_vocab(config) != origin.vocab) config.model.vocab = origin.vocab;
}

plan::Digest digest_of(const Weights& weights) {
  constexpr int64_t kBlock = int64_t{1} << 18;
  plan::Digest digest;
  std::vector<float> values(kBlock);
  for (const WeightInfo& tensor : weights.list()) {
    for (int64_t at = 0; at < tensor.numel; at += kBlock) {
      const int64_t count = std::min(kBlock, tensor.numel - at);
      weights.read(tensor.name, at, count, values.data());
      digest.add(tensor.name, at, values.data(), count);
    }
  }
  return digest;
}

plan::TrainConfig model_of(const std::string& path) {
  plan::TrainConfig config;
  take_model_settings(*open_weights(path), config);
  return config;
}

}  // namespace lockstep::checkpoints
