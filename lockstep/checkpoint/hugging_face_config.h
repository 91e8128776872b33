/// config.json of a Hugging Face folder, both ways: GPT-2 and Llama.
///
///   ours          GPT-2                          Llama
///   layers        n_layer                        num_hidden_layers
///   heads         n_head                         num_attention_heads
///   kv_heads                                     num_key_value_heads
///   width         n_embd                         hidden_size
///   ffn           n_inner                        intermediate_size
///   context       n_positions                    max_position_embeddings
///   norm_eps      layer_norm_epsilon             rms_norm_eps
///   rope_theta                                   rope_theta, alone or in rope_parameters
///   tied          tie_word_embeddings            the same
///   init_std      initializer_range              the same
///   dropout       embd_, attn_, resid_pdrop
///
/// Lockstep adds "lockstep_tokenizer", a name of plan/tokenizers.h; other readers pass over it.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "lockstep/checkpoint/weights.h"

namespace lockstep::checkpoints {

/// Without kind and path. Throws StateError naming file, key and value: another model, a variant
/// that Lockstep does not compute, a key that it does not know.
WeightOrigin read_hugging_face_config(const std::string& path);

/// `dtype`: of the weights, as safetensors has it. Throws UsageError for a family that Hugging Face
/// has no model of.
nlohmann::json hugging_face_config(const WeightOrigin& origin, const std::string& dtype);
/// generation_config.json.
nlohmann::json hugging_face_generation_config(const WeightOrigin& origin);

}  // namespace lockstep::checkpoints
