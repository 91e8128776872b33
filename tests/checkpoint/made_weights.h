/// Models made of numbers that show any mix-up of rows, columns and names.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/hash.h"
#include "lockstep/checkpoint/tensor_table.h"
#include "lockstep/checkpoint/weights.h"

namespace lockstep::checkpoints::testing {

/// 24 bits and a sign: each a number of its own, exact in fp32.
inline float made_value(const std::string& name, int64_t index) {
  const uint64_t bits = base::mix64(base::fnv1a(name) + static_cast<uint64_t>(index));
  return static_cast<float>(static_cast<int32_t>(bits >> 39) - (1 << 24)) * 0x1p-25f;
}

class MadeWeights final : public Weights {
 public:
  MadeWeights(const plan::TrainConfig& config, int64_t vocab) {
    origin_.path = "made";
    origin_.kind = "made";
    origin_.config = config;
    origin_.vocab = vocab;
    TensorTable table = config.model.family == "llama"
                            ? llama_table(config, vocab)
                            : gpt2_table(config, vocab, Linears::out_in, "");
    if (config.model.family == "gpt2" && !config.model.bias) table = without_biases(table);
    list_ = logical_tensors(table);
  }

  const WeightOrigin& origin() const override { return origin_; }
  const std::vector<WeightInfo>& list() const override { return list_; }
  void read(const std::string& name, int64_t first, int64_t count, float* out) const override {
    for (int64_t i = 0; i < count; ++i) out[i] = made_value(name, first + i);
  }

 private:
  WeightOrigin origin_;
  std::vector<WeightInfo> list_;
};

inline plan::TrainConfig gpt2(bool tied = true) {
  plan::TrainConfig config;
  config.model.family = "gpt2";
  config.model.layers = 2;
  config.model.heads = 2;
  config.model.width = 6;
  config.model.context = 5;
  config.model.tied = tied;
  config.model.vocab = 11;
  return config;
}

inline plan::TrainConfig llama(int64_t kv_heads = 2, bool tied = false) {
  plan::TrainConfig config;
  config.model.family = "llama";
  config.model.layers = 2;
  config.model.heads = 4;
  config.model.kv_heads = kv_heads;
  config.model.width = 16;
  config.model.ffn = 10;
  config.model.context = 7;
  config.model.tied = tied;
  config.model.bias = false;
  config.model.vocab = 13;
  config.model.norm_eps = 1e-6;
  config.model.rope_theta = 5e5;
  return config;
}

inline std::vector<float> all_of(const Weights& weights, const std::string& name) {
  std::vector<float> values(static_cast<size_t>(weights.info(name).numel));
  weights.read(name, 0, std::ssize(values), values.data());
  return values;
}

}  // namespace lockstep::checkpoints::testing
