/// The weights of a model by the names of their logical tensors, whatever file holds them: a model
/// file or checkpoint of Lockstep on any layout, or a model of another program in its names, order
/// and layout of rows (checkpoint/hugging_face.h, checkpoint/nanogpt.h, checkpoint/llmc.h).
///
/// Who fills a model, exports or compares asks for runs of elements and never learns where they
/// lie. Nothing that is read can run code.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/plan/digest.h"
#include "lockstep/plan/train_config.h"

namespace lockstep::checkpoints {

struct WeightInfo {
  std::string name;  // as models/decoder.h has it: "h.0.attn.c_attn.weight"
  std::vector<int64_t> shape;
  int64_t numel = 0;
};

/// What the model is that the weights belong to.
struct WeightOrigin {
  std::string path;  // as it was asked for
  std::string kind;  // "Lockstep checkpoint", "Hugging Face GPT-2", ...
  /// Settings of the model (section model, data.tokenizer where it is known); of a run of Lockstep
  /// all of them.
  plan::TrainConfig config;
  int64_t vocab = 0;
  int64_t step = 0;          // after which they were saved; 0: unknown
  std::string param_digest;  // that the file states; empty: it states none
  std::string identity;      // of the run; empty: no run of Lockstep
  bool knows_tokenizer = true;
  /// What a user should know of a model that is not quite as the other program has it, a sentence
  /// each.
  std::vector<std::string> notes;
};

class Weights {
 public:
  virtual ~Weights() = default;

  virtual const WeightOrigin& origin() const = 0;
  /// In name order; a tied head is the embedding and not listed.
  virtual const std::vector<WeightInfo>& list() const = 0;
  /// Elements first, first + 1, ... of a listed tensor, row-major, as fp32. Throws StateError
  /// naming the file: no such tensor, cut short, damaged where the format can tell.
  virtual void read(const std::string& name, int64_t first, int64_t count, float* out) const = 0;

  /// Throws StateError naming the file if there is no such tensor; offers the nearest name.
  const WeightInfo& info(const std::string& name) const;
  bool has(const std::string& name) const;
};

struct OpenOptions {
  /// Of nanoGPT's files, which need not say it; 0: their metadata do.
  int64_t heads = 0;
};

/// What lies at `path`: a run folder (final.safetensors, or a checkpoint of a later step), a
/// checkpoint folder, a model file of Lockstep, a Hugging Face folder of GPT-2 or Llama, a
/// safetensors file with nanoGPT's names, a model file of llm.c. Throws StateError naming path and
/// reason: nothing of these, cut short, or a file that could carry code (it says how such a model
/// is brought in).
std::unique_ptr<Weights> open_weights(const std::string& path, const OpenOptions& options = {});

/// Throws StateError naming the file if the numbers are not of the digest that it states; reads all
/// of them. What states none passes.
void prove(const Weights& weights);

/// Throws StateError if `weights` do not fit the model of `config`: names the first setting or
/// tensor that differs, and both values. What a model is trained with (dropout, the start values'
/// spread) may differ, and of llama, which has no table of positions, the context.
void require_same_model(const Weights& weights, const plan::TrainConfig& config, int64_t vocab);

/// The model of `config` becomes that of `weights`, and the tokenizer where it is known.
void take_model_settings(const Weights& weights, plan::TrainConfig& config);

/// Of all tensors: what a run of Lockstep calls the param_digest.
plan::Digest digest_of(const Weights& weights);

/// The settings of the model at `path`, and defaults.
plan::TrainConfig model_of(const std::string& path);

}  // namespace lockstep::checkpoints
