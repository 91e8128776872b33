#include "lockstep/checkpoint/gguf.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/gguf_vocabulary.h"
#include "lockstep/checkpoint/tensor_source.h"
#include "lockstep/checkpoint/tensor_table.h"
#include "lockstep/files/gguf.h"
#include "lockstep/files/tokenizer.h"

namespace lockstep::checkpoints {
namespace {

constexpr float kMostInHalf = 65'504;

/// Hugging Face's name of a tensor, or of the part behind "model.layers.N.", and llama.cpp's.
constexpr std::pair<const char*, const char*> kNames[] = {
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"input_layernorm.weight", "attn_norm.weight"},
    {"self_attn.q_proj.weight", "attn_q.weight"},
    {"self_attn.k_proj.weight", "attn_k.weight"},
    {"self_attn.v_proj.weight", "attn_v.weight"},
    {"self_attn.o_proj.weight", "attn_output.weight"},
    {"post_attention_layernorm.weight", "ffn_norm.weight"},
    {"mlp.gate_proj.weight", "ffn_gate.weight"},
    {"mlp.up_proj.weight", "ffn_up.weight"},
    {"mlp.down_proj.weight", "ffn_down.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"}};

/// "model.layers.3.mlp.up_proj.weight" -> "blk.3.ffn_up.weight".
std::string gguf_name(const std::string& name) {
  for (const auto& [theirs, gguf] : kNames) {
    if (name == theirs) return gguf;
    if (!name.starts_with("model.layers.") || !name.ends_with(std::string(".") + theirs)) continue;
    const size_t dot = name.find('.', 13);
    return base::str("blk.", name.substr(13, dot - 13), ".", gguf);
  }
  throw UsageError(base::str("tensor ", name, " has no name in a GGUF file."));
}

int64_t kv_heads_of(const plan::TrainConfig& config) {
  return config.model.kv_heads > 0 ? config.model.kv_heads : config.model.heads;
}

/// Tensors in the file's order, names and types, brought one by one.
class Tensors {
 public:
  Tensors(const Weights& weights, std::string dtype)
      : weights_(weights),
        dtype_(std::move(dtype)),
        head_width_(weights.origin().config.model.width / weights.origin().config.model.heads),
        table_(llama_table(weights.origin().config, weights.origin().vocab)) {}

  std::vector<files::GgufTensor> list() {
    std::vector<files::GgufTensor> tensors;
    for (const TensorRow& row : table_) {
      tensors.push_back({.name = gguf_name(row.name),
                         .dtype = dtype_of(row),
                         .shape = row.shape,
                         .bring = [this, &row] { return bring(row); }});
    }
    return tensors;
  }

 private:
  /// llama.cpp multiplies by norms as they are.
  std::string dtype_of(const TensorRow& row) const {
    return row.shape.size() == 1 ? "F32" : dtype_;
  }

  const void* bring(const TensorRow& row) {
    const int64_t numel = row.numel(), columns = numel / row.rows();
    values_.resize(static_cast<size_t>(numel));
    weights_.read(row.logical, row.first_row * columns, numel, values_.data());
    if (row.name.ends_with("q_proj.weight") || row.name.ends_with("k_proj.weight")) {
      pair_rows(columns);
    }
    if (dtype_of(row) == "F32") return values_.data();
    const auto large = std::find_if(values_.begin(), values_.end(),
                                    [](float value) { return !(std::abs(value) <= kMostInHalf); });
    if (large != values_.end()) {
      throw UsageError(
          base::str(row.logical, " holds ", *large, ", which F16 cannot: export F32."));
    }
    halves_.resize(values_.size());
    narrow("F16", values_.data(), numel, halves_.data());
    return halves_.data();
  }

  /// Of each head: 0, 1, ... K - 1 becomes 0, K/2, 1, K/2 + 1, ...
  void pair_rows(int64_t columns) {
    const std::vector<float> halves = values_;
    const int64_t rows = std::ssize(halves) / columns, half = head_width_ / 2;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t in_head = r % head_width_;
      const int64_t from = r - in_head + in_head / 2 + (in_head % 2) * half;
      std::copy_n(halves.begin() + from * columns, columns, values_.begin() + r * columns);
    }
  }

  const Weights& weights_;
  std::string dtype_;
  int64_t head_width_;
  TensorTable table_;
  std::vector<float> values_;
  std::vector<uint16_t> halves_;
};

files::GgufKeys model_keys(const WeightOrigin& origin, const std::string& dtype) {
  const auto& model = origin.config.model;
  const auto number = [](int64_t value) { return static_cast<uint32_t>(value); };
  return {{"general.architecture", "llama"},
          {"general.name", origin.config.run.name},
          {"general.file_type", number(dtype == "F16" ? 1 : 0)},
          {"general.alignment", number(files::kGgufAlignment)},
          {"llama.vocab_size", number(origin.vocab)},
          {"llama.context_length", number(model.context)},
          {"llama.embedding_length", number(model.width)},
          {"llama.block_count", number(model.layers)},
          {"llama.feed_forward_length", number(plan::feed_forward_width(origin.config))},
          {"llama.attention.head_count", number(model.heads)},
          {"llama.attention.head_count_kv", number(kv_heads_of(origin.config))},
          {"llama.attention.layer_norm_rms_epsilon", static_cast<float>(model.norm_eps)},
          {"llama.rope.dimension_count", number(model.width / model.heads)},
          {"llama.rope.freq_base", static_cast<float>(model.rope_theta)}};
}

}  // namespace

void export_gguf(const Weights& weights, const std::string& path, const std::string& dtype) {
  const WeightOrigin& origin = weights.origin();
  if (origin.config.model.family != "llama") {
    throw UsageError(base::str("a GGUF file is written of the family llama; ", origin.path,
                               " is of the family ", origin.config.model.family,
                               ", which leaves as a Hugging Face folder."));
  }
  if (dtype != "F32" && dtype != "F16") {
    throw UsageError(base::str("the dtype of a GGUF file is F32 or F16, not ", dtype, "."));
  }
  if (!origin.knows_tokenizer) {
    throw UsageError(base::str(origin.path, " does not say which tokenizer its ids are of, and a ",
                               "GGUF file holds the vocabulary. Hugging Face folders "
                               "do without."));
  }
  files::GgufKeys keys = model_keys(origin, dtype);
  for (auto& key :
       gguf_vocabulary(origin.config.data.tokenizer, origin.vocab, files::kTokenizerFolder)) {
    keys.push_back(std::move(key));
  }
  Tensors tensors(weights, dtype);
  files::write_gguf(path, keys, tensors.list());
}

}  // namespace lockstep::checkpoints
