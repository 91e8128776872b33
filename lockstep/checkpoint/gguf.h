/// A llama model as a GGUF file, for llama.cpp and what is made of it.
///
///   ours                     in the file
///   wte.weight               token_embd.weight
///   h.N.ln_1.weight          blk.N.attn_norm.weight                     F32 always, as ln_2, ln_f
///   h.N.attn.c_attn.weight   blk.N.attn_q, attn_k, attn_v.weight        rows of q and k in pairs
///   h.N.attn.c_proj.weight   blk.N.attn_output.weight
///   h.N.mlp.gate_up.weight   blk.N.ffn_gate, ffn_up.weight
///   h.N.mlp.c_proj.weight    blk.N.ffn_down.weight
///   lm_head.weight           output.weight                              only if it is not tied
///
/// Rotary positions turn row i of a head with row i + K/2 in Lockstep, neighbours in llama.cpp:
/// rows of q and k are put in the order 0, K/2, 1, K/2 + 1, ...
///
/// Holds   one tensor as fp32, and in the file's type
/// Source  docs/concepts/model_formats.md; llama.cpp src/llama-arch.cpp for the names
#pragma once

#include <string>

#include "lockstep/checkpoint/weights.h"

namespace lockstep::checkpoints {

/// Writes `weights` to `path`, whole or not at all, with the vocabulary of their tokenizer.
///
/// dtype   "F32" or "F16", of all matrices
/// throws  UsageError: not of the family llama, a tokenizer that llama.cpp has no like of, another
///         dtype, a value that F16 cannot hold. StateError: the file cannot be written, the weights
///         cannot be read. EnvironmentError: the tokenizer's vocabulary is not there
void export_gguf(const Weights& weights, const std::string& path, const std::string& dtype);

}  // namespace lockstep::checkpoints
