/// Whose tensor is which: the names, shapes and layouts of other programs beside ours. The same
/// table imports and exports.
///
///   ours                     Hugging Face GPT-2 ((in, out))    nanoGPT, llm.c   Llama
///   wte.weight               wte.weight                        the same         embed_tokens
///   h.N.attn.c_attn.weight   the same, transposed              the same         q_ k_ v_proj, in
///                                                                               this order of rows
///   h.N.mlp.gate_up.weight                                                      gate_ up_proj
///   lm_head.weight           only if it is not tied
///
/// Source  the published models' files;  docs/concepts/model_formats.md
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/checkpoint/weights.h"
#include "lockstep/plan/train_config.h"

namespace lockstep::checkpoints {

/// A tensor of another program: rows first_row, first_row + 1, ... of one of ours.
struct TensorRow {
  std::string name;
  std::vector<int64_t> shape;  // theirs
  std::string logical;         // ours; empty: we have none, and it is all zeros
  int64_t first_row = 0;
  bool transposed = false;  // theirs is (columns, rows)

  int64_t rows() const { return shape[transposed ? 1 : 0]; }  // in ours
  int64_t numel() const { return shape.size() == 2 ? shape[0] * shape[1] : shape[0]; }
};
using TensorTable = std::vector<TensorRow>;

enum class Linears { in_out, out_in };

/// Of the family gpt2, with all biases. `prefix` stands before all names but the head's, which
/// `head_prefix` stands before.
TensorTable gpt2_table(const plan::TrainConfig& config, int64_t vocab, Linears linears,
                       const std::string& prefix, const std::string& head_prefix = "");
/// Without the biases that a model trained without them lacks.
TensorTable without_biases(TensorTable table);
/// Of the family llama, in the names of Hugging Face.
TensorTable llama_table(const plan::TrainConfig& config, int64_t vocab);

/// Our tensors that a table makes, in name order.
std::vector<WeightInfo> logical_tensors(const TensorTable& table);

}  // namespace lockstep::checkpoints
