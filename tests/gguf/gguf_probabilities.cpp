// gguf_probabilities FOLDER DTYPE TIED: writes a small llama of random weights to
// FOLDER/model.gguf, and to FOLDER/wanted.json a text, its ids and Lockstep's probability of every
// next id after each. gguf_probabilities.mjs asks llama.cpp the same.

#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/gguf.h"
#include "lockstep/checkpoint/tensor_table.h"
#include "lockstep/files/tokenizer.h"
#include "lockstep/models/decoder.h"
#include "tests/models/model_fixture.h"

namespace lockstep {
namespace {

/// All bytes of GPT-2's alphabet that are letters, signs and none: spaces, line feeds, umlauts.
constexpr const char* kText = "Hello,  w\xc3\xb6rld!\n\tIt's 1813. \xe4\xbd\xa0 ~\x7f";

class ModuleWeights : public checkpoints::Weights {
 public:
  ModuleWeights(const models::Decoder& decoder, checkpoints::WeightOrigin origin)
      : origin_(std::move(origin)),
        list_(
            checkpoints::logical_tensors(checkpoints::llama_table(origin_.config, origin_.vocab))) {
    for (const auto& item : decoder.named_parameters()) values_[item.key()] = item.value();
  }
  const checkpoints::WeightOrigin& origin() const override { return origin_; }
  const std::vector<checkpoints::WeightInfo>& list() const override { return list_; }
  void read(const std::string& name, int64_t first, int64_t count, float* out) const override {
    std::copy_n(values_.at(name).data_ptr<float>() + first, count, out);
  }

 private:
  checkpoints::WeightOrigin origin_;
  std::vector<checkpoints::WeightInfo> list_;
  std::map<std::string, at::Tensor> values_;
};

void write_model(const std::string& folder, const std::string& dtype, bool tied) {
  checkpoints::WeightOrigin origin;
  origin.path = folder;
  auto& model = origin.config.model;
  model.family = "llama";
  model.layers = 3;
  model.heads = 4;
  model.kv_heads = 2;
  model.width = 64;
  model.context = 64;
  model.tied = tied;
  model.rope_theta = 500;  // so that all of a head's pairs turn within the text
  origin.vocab = files::open_tokenizer("bytes")->vocab_size();

  models::Decoder decoder({.style = models::DecoderStyle::llama,
                           .vocab = origin.vocab,
                           .layers = model.layers,
                           .heads = model.heads,
                           .kv_heads = model.kv_heads,
                           .width = model.width,
                           .ffn = plan::feed_forward_width(origin.config),
                           .context = model.context,
                           .tied = tied,
                           .bias = false,
                           .norm_eps = model.norm_eps,
                           .rope_theta = model.rope_theta});
  models::fill(decoder, /*seed=*/11, /*spread=*/0.25);
  models::apply_ties(decoder);
  decoder.eval();

  const auto ids = files::open_tokenizer("bytes")->encode(kText);
  const at::Tensor logits =
      decoder.logits(at::tensor(ids, at::kLong).unsqueeze(0), models::context_of());
  const at::Tensor wanted = at::softmax(logits.to(at::kDouble), -1).contiguous();
  nlohmann::json rows = nlohmann::json::array();
  for (int64_t i = 0; i < std::ssize(ids); ++i) {
    const double* row = wanted.data_ptr<double>() + i * origin.vocab;
    rows.push_back(std::vector<double>(row, row + origin.vocab));
  }
  export_gguf(ModuleWeights(decoder, origin), folder + "/model.gguf", dtype);
  std::ofstream(folder + "/wanted.json")
      << nlohmann::json{{"text", kText}, {"ids", ids}, {"probabilities", rows}}.dump();
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  try {
    lockstep::write_model(argv[1], argv[2], argv[3] == std::string("tied"));
  } catch (const lockstep::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
