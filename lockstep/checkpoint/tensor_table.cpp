#include "lockstep/checkpoint/tensor_table.h"

#include <algorithm>
#include <map>

#include "lockstep/base/str.h"

namespace lockstep::checkpoints {
namespace {

int64_t kv_width(const plan::TrainConfig& config) {
  const auto& model = config.model;
  const int64_t kv_heads = model.kv_heads > 0 ? model.kv_heads : model.heads;
  return kv_heads * (model.width / model.heads);
}

}  // namespace

TensorTable gpt2_table(const plan::TrainConfig& config, int64_t vocab, Linears linears,
                       const std::string& prefix, const std::string& head_prefix) {
  const auto& model = config.model;
  const int64_t D = model.width, F = plan::feed_forward_width(config);
  const bool transposed = linears == Linears::in_out;
  TensorTable table;
  const auto add = [&](const std::string& logical, std::vector<int64_t> shape) {
    table.push_back({.name = prefix + logical, .shape = std::move(shape), .logical = logical});
  };
  const auto norm = [&](const std::string& path) {
    add(path + ".weight", {D});
    add(path + ".bias", {D});
  };
  const auto linear = [&](const std::string& path, int64_t out, int64_t in) {
    add(path + ".weight", transposed ? std::vector{in, out} : std::vector{out, in});
    table.back().transposed = transposed;
    add(path + ".bias", {out});
  };
  add("wte.weight", {vocab, D});
  add("wpe.weight", {model.context, D});
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    const std::string block = base::str("h.", layer, ".");
    norm(block + "ln_1");
    linear(block + "attn.c_attn", 3 * D, D);
    linear(block + "attn.c_proj", D, D);
    norm(block + "ln_2");
    linear(block + "mlp.c_fc", F, D);
    linear(block + "mlp.c_proj", D, F);
  }
  norm("ln_f");
  if (!model.tied) {
    table.push_back(
        {.name = head_prefix + "lm_head.weight", .shape = {vocab, D}, .logical = "lm_head.weight"});
  }
  return table;
}

TensorTable without_biases(TensorTable table) {
  std::erase_if(table, [](const TensorRow& row) { return row.name.ends_with(".bias"); });
  return table;
}

TensorTable llama_table(const plan::TrainConfig& config, int64_t vocab) {
  const auto& model = config.model;
  const int64_t D = model.width, F = plan::feed_forward_width(config), J = kv_width(config);
  TensorTable table;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape,
                       const std::string& logical, int64_t first_row = 0) {
    table.push_back(
        {.name = name, .shape = std::move(shape), .logical = logical, .first_row = first_row});
  };
  add("model.embed_tokens.weight", {vocab, D}, "wte.weight");
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    const std::string theirs = base::str("model.layers.", layer, ".");
    const std::string ours = base::str("h.", layer, ".");
    add(theirs + "input_layernorm.weight", {D}, ours + "ln_1.weight");
    add(theirs + "self_attn.q_proj.weight", {D, D}, ours + "attn.c_attn.weight");
    add(theirs + "self_attn.k_proj.weight", {J, D}, ours + "attn.c_attn.weight", D);
    add(theirs + "self_attn.v_proj.weight", {J, D}, ours + "attn.c_attn.weight", D + J);
    add(theirs + "self_attn.o_proj.weight", {D, D}, ours + "attn.c_proj.weight");
    add(theirs + "post_attention_layernorm.weight", {D}, ours + "ln_2.weight");
    add(theirs + "mlp.gate_proj.weight", {F, D}, ours + "mlp.gate_up.weight");
    add(theirs + "mlp.up_proj.weight", {F, D}, ours + "mlp.gate_up.weight", F);
    add(theirs + "mlp.down_proj.weight", {D, F}, ours + "mlp.c_proj.weight");
  }
  add("model.norm.weight", {D}, "ln_f.weight");
  if (!model.tied) add("lm_head.weight", {vocab, D}, "lm_head.weight");
  return table;
}

std::vector<WeightInfo> logical_tensors(const TensorTable& table) {
  std::map<std::string, WeightInfo> by_name;
  for (const TensorRow& row : table) {
    if (row.logical.empty()) continue;
    WeightInfo& tensor = by_name[row.logical];
    tensor.name = row.logical;
    if (tensor.shape.empty()) {
      tensor.shape = row.shape;
      if (row.transposed) std::swap(tensor.shape[0], tensor.shape[1]);
    } else {
      tensor.shape[0] += row.rows();
    }
    tensor.numel += row.numel();
  }
  std::vector<WeightInfo> tensors;
  for (auto& [name, tensor] : by_name) tensors.push_back(std::move(tensor));
  return tensors;
}

}  // namespace lockstep::checkpoints
