#include "lockstep/checkpoint/hugging_face_config.h"

#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/config_reader.h"
#include "lockstep/checkpoint/gpt2_tokenizer.h"
#include "lockstep/plan/tokenizers.h"

namespace lockstep::checkpoints {
namespace {

using Json = nlohmann::json;

constexpr const char* kTokenizerKey = "lockstep_tokenizer";
constexpr int64_t kGpt2EndOfText = 50'256;

/// Through the table of settings, which knows each one's range.
void set(ConfigReader& config, plan::TrainConfig& into, const std::string& key, const Json& value) {
  try {
    plan::set_value(into, key, value);
  } catch (const UsageError& error) {
    throw StateError(base::str(config.place(), ": ", error.what()));
  }
}

bool is_tokenizer(const std::string& name) {
  for (const auto& tokenizer : plan::kTokenizers) {
    if (tokenizer.name == name) return true;
  }
  return false;
}

/// What any model's file may say that changes nothing which is computed here.
void pass_over_common_keys(ConfigReader& config) {
  config.pass_over({"architectures",
                    "model_type",
                    "_name_or_path",
                    "transformers_version",
                    "torch_dtype",
                    "dtype",
                    "use_cache",
                    "bos_token_id",
                    "eos_token_id",
                    "pad_token_id",
                    "sep_token_id",
                    "decoder_start_token_id",
                    "id2label",
                    "label2id",
                    "num_labels",
                    "problem_type",
                    "task_specific_params",
                    "finetuning_task",
                    "tokenizer_class",
                    "transformers.js_config",
                    "is_llama_config",
                    "prefix",
                    "gradient_checkpointing",
                    "output_attentions",
                    "output_hidden_states",
                    "return_dict",
                    "torchscript",
                    "attn_implementation",
                    "_attn_implementation",
                    "_attn_implementation_autoset",
                    "max_length",
                    "min_length",
                    "do_sample",
                    "early_stopping",
                    "num_beams",
                    "temperature",
                    "top_k",
                    "top_p",
                    "typical_p",
                    "repetition_penalty",
                    "length_penalty",
                    "num_return_sequences"});
  config.require("is_encoder_decoder", {false}, "decoders alone are read");
  config.require("is_decoder", {false, true}, "it should be true or false");
  config.require("add_cross_attention", {false}, "there is no attention to another sequence");
  config.require("pruned_heads", {Json::object()}, "every layer has all its heads");
  if (!config.any("quantization_config").is_null()) {
    config.refuse("quantization_config", "weights in F32, F16 and BF16 are read");
  }
  if (!config.any("auto_map").is_null()) {
    config.refuse("auto_map", "the model's own code would compute it, and none is run");
  }
}

/// `models`: those whose weights are these, with a head and without.
void require_architecture(ConfigReader& config, const std::vector<std::string>& models) {
  const Json given = config.any("architectures");
  if (given.is_null()) return;
  for (const std::string& model : models) {
    if (given == Json::array({model})) return;
  }
  config.refuse("architectures", base::str("Lockstep reads ", base::joined(models, " and ")));
}

void read_tokenizer(ConfigReader& config, WeightOrigin& origin) {
  const std::string name = config.text(kTokenizerKey, "");
  if (!name.empty()) {
    if (!is_tokenizer(name)) config.refuse(kTokenizerKey, "there is no such tokenizer");
    origin.config.data.tokenizer = name;
    return;
  }
  const char* const why =
      "Which tokenizer its ids are of is not known: tokenizer.json is not read.";
  if (origin.config.model.family == "gpt2") {
    guess_gpt2_tokenizer(origin, why);
  } else {
    origin.knows_tokenizer = false;
    origin.notes.emplace_back(why);
  }
}

void read_gpt2(ConfigReader& config, WeightOrigin& origin) {
  require_architecture(config, {"GPT2LMHeadModel", "GPT2Model"});
  plan::TrainConfig& ours = origin.config;
  set(config, ours, "model.family", "gpt2");
  set(config, ours, "model.layers", config.whole("n_layer", 12));
  set(config, ours, "model.heads", config.whole("n_head", 12));
  set(config, ours, "model.width", config.whole("n_embd", 768));
  set(config, ours, "model.ffn", config.whole("n_inner", 0));
  set(config, ours, "model.context", config.whole("n_positions", 1024));
  set(config, ours, "model.vocab", config.whole("vocab_size", 50'257));
  set(config, ours, "model.norm_eps", config.real("layer_norm_epsilon", 1e-5));
  set(config, ours, "model.init_std", config.real("initializer_range", 0.02));
  set(config, ours, "model.tied", config.flag("tie_word_embeddings", true));
  set(config, ours, "model.bias", true);
  const double embedding = config.real("embd_pdrop", 0.1);
  const double attention = config.real("attn_pdrop", 0.1);
  const double branches = config.real("resid_pdrop", 0.1);
  if (embedding == attention && attention == branches) {
    set(config, ours, "model.dropout", embedding);
  } else {
    origin.notes.push_back(base::str("Its dropouts (embedding ", embedding, ", attention ",
                                     attention, ", branches ", branches,
                                     ") differ, and Lockstep has one: model.dropout is 0."));
  }
  config.require("activation_function", {"gelu_new", "gelu_pytorch_tanh"},
                 "the family gpt2 has the tanh form of GELU, gelu_new");
  config.require("scale_attn_weights", {true}, "scores are divided by the root of a head's width");
  config.require("scale_attn_by_inverse_layer_idx", {false},
                 "scores of all layers have the same scale");
  config.require("reorder_and_upcast_attn", {false, true}, "it should be true or false");
  config.require("n_ctx", {ours.model.context}, "it should be n_positions");
  config.pass_over({"summary_type", "summary_use_proj", "summary_activation",
                    "summary_first_dropout", "summary_proj_to_labels"});
}

/// RoPE is described in one of three places, as the program that wrote the file was old.
double read_rope_theta(ConfigReader& config) {
  const double alone = config.real("rope_theta", 10'000);
  double theta = alone;
  for (const char* const key : {"rope_scaling", "rope_parameters"}) {
    const Json nested = config.any(key);
    if (nested.is_null()) continue;
    ConfigReader rope(base::str(config.place(), ", \"", key, "\""), nested);
    for (const char* const type : {"rope_type", "type"}) {
      const Json given = rope.any(type);
      if (given.is_null() || given == "default") continue;
      config.refuse(key, "Lockstep turns by the positions as they are, rope_type \"default\"");
    }
    rope.require("partial_rotary_factor", {1, 1.0}, "all features of a head are turned");
    theta = rope.real("rope_theta", alone);
    rope.refuse_the_rest();
  }
  config.require("partial_rotary_factor", {1, 1.0}, "all features of a head are turned");
  return theta;
}

void read_llama(ConfigReader& config, WeightOrigin& origin) {
  require_architecture(config, {"LlamaForCausalLM", "LlamaModel"});
  plan::TrainConfig& ours = origin.config;
  set(config, ours, "model.family", "llama");
  set(config, ours, "model.layers", config.whole("num_hidden_layers", 32));
  set(config, ours, "model.heads", config.whole("num_attention_heads", 32));
  const int64_t kv_heads = config.whole("num_key_value_heads", ours.model.heads);
  set(config, ours, "model.kv_heads", kv_heads == ours.model.heads ? 0 : kv_heads);
  set(config, ours, "model.width", config.whole("hidden_size", 4096));
  set(config, ours, "model.ffn", config.whole("intermediate_size", 11'008));
  set(config, ours, "model.context", config.whole("max_position_embeddings", 2048));
  set(config, ours, "model.vocab", config.whole("vocab_size", 32'000));
  set(config, ours, "model.norm_eps", config.real("rms_norm_eps", 1e-6));
  set(config, ours, "model.init_std", config.real("initializer_range", 0.02));
  set(config, ours, "model.tied", config.flag("tie_word_embeddings", false));
  set(config, ours, "model.rope_theta", read_rope_theta(config));
  set(config, ours, "model.bias", false);
  const int64_t head = config.whole("head_dim", ours.model.width / ours.model.heads);
  if (head * ours.model.heads != ours.model.width) {
    config.refuse("head_dim", base::str("Lockstep's heads share the width, ", ours.model.width,
                                        " over ", ours.model.heads, " heads"));
  }
  config.require("hidden_act", {"silu", "swish"}, "the family llama has silu(gate) * up");
  config.require("attention_bias", {false}, "the family llama has no biases");
  config.require("mlp_bias", {false}, "the family llama has no biases");
  const double dropout = config.real("attention_dropout", 0);
  if (dropout != 0) {
    origin.notes.push_back(base::str("Its attention_dropout ", dropout,
                                     " is of the attention alone: model.dropout is 0."));
  }
  config.require("rope_interleaved", {false}, "features of a head are paired by halves");
  config.pass_over({"pretraining_tp"});  // the same sums in another order
}

void require_shape(const WeightOrigin& origin, const std::string& path) {
  const auto& model = origin.config.model;
  const int64_t kv_heads = model.kv_heads > 0 ? model.kv_heads : model.heads;
  if (model.width % model.heads != 0) {
    throw StateError(base::str(path, ": a width of ", model.width, " does not divide by ",
                               model.heads, " heads."));
  }
  if (model.heads % kv_heads != 0) {
    throw StateError(base::str(path, ": ", model.heads, " heads do not divide by ", kv_heads,
                               " heads of keys."));
  }
}

/// The id that ends a text, of tokenizers that have one.
std::optional<int64_t> end_of_text(const plan::TrainConfig& config) {
  const std::string& name = config.data.tokenizer;
  if (name == "gpt2" || name == "r50k" || name == "p50k") return kGpt2EndOfText;
  if (name == "cl100k") return 100'257;
  if (name == "o200k") return 199'999;
  return std::nullopt;
}

}  // namespace

WeightOrigin read_hugging_face_config(const std::string& path) {
  ConfigReader config(path);
  WeightOrigin origin;
  const std::string type = config.text("model_type", "");
  pass_over_common_keys(config);
  if (type == "gpt2") {
    read_gpt2(config, origin);
  } else if (type == "llama") {
    read_llama(config, origin);
  } else {
    throw StateError(base::str(path, ": model_type \"", type,
                               "\": of Hugging Face, Lockstep reads gpt2 and llama."));
  }
  origin.vocab = origin.config.model.vocab;
  read_tokenizer(config, origin);
  config.refuse_the_rest();
  require_shape(origin, path);
  set_vocab(origin);
  return origin;
}

nlohmann::json hugging_face_config(const WeightOrigin& origin, const std::string& dtype) {
  const auto& model = origin.config.model;
  const std::optional<int64_t> end = end_of_text(origin.config);
  const bool known = origin.knows_tokenizer && end;
  Json json = {{"vocab_size", origin.vocab},
               {"initializer_range", model.init_std},
               {"tie_word_embeddings", model.tied},
               {"bos_token_id", known ? Json(*end) : Json()},
               {"eos_token_id", known ? Json(*end) : Json()},
               {"use_cache", true},
               {"torch_dtype", dtype == "F32"   ? "float32"
                               : dtype == "F16" ? "float16"
                                                : "bfloat16"}};
  if (origin.knows_tokenizer) json[kTokenizerKey] = origin.config.data.tokenizer;
  const int64_t ffn = plan::feed_forward_width(origin.config);
  if (model.family == "gpt2") {
    json.update({{"model_type", "gpt2"},
                 {"architectures", {"GPT2LMHeadModel"}},
                 {"n_layer", model.layers},
                 {"n_head", model.heads},
                 {"n_embd", model.width},
                 {"n_inner", ffn == 4 * model.width ? Json() : Json(ffn)},
                 {"n_positions", model.context},
                 {"layer_norm_epsilon", model.norm_eps},
                 {"activation_function", "gelu_new"},
                 {"embd_pdrop", model.dropout},
                 {"attn_pdrop", model.dropout},
                 {"resid_pdrop", model.dropout}});
  } else if (model.family == "llama") {
    json.update({{"model_type", "llama"},
                 {"architectures", {"LlamaForCausalLM"}},
                 {"num_hidden_layers", model.layers},
                 {"num_attention_heads", model.heads},
                 {"num_key_value_heads", model.kv_heads > 0 ? model.kv_heads : model.heads},
                 {"head_dim", model.width / model.heads},
                 {"hidden_size", model.width},
                 {"intermediate_size", ffn},
                 {"max_position_embeddings", model.context},
                 {"rms_norm_eps", model.norm_eps},
                 {"rope_theta", model.rope_theta},
                 {"hidden_act", "silu"},
                 {"attention_bias", false},
                 {"mlp_bias", false},
                 {"attention_dropout", 0.0}});
  } else {
    throw UsageError(base::str(origin.path, ": Hugging Face has no model of the family ",
                               model.family, ". gpt2 and llama can be exported."));
  }
  return json;
}

nlohmann::json hugging_face_generation_config(const WeightOrigin& origin) {
  Json json = {{"_from_model_config", true}};
  const std::optional<int64_t> end = end_of_text(origin.config);
  if (origin.knows_tokenizer && end) json.update({{"bos_token_id", *end}, {"eos_token_id", *end}});
  return json;
}

}  // namespace lockstep::checkpoints
