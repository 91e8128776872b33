#include "lockstep/models/decoder.h"

#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/planted_fault.h"
#include "lockstep/base/str.h"
#include "lockstep/fused/embedding.h"
#include "lockstep/models/detail/decoder_block.h"
#include "lockstep/models/detail/grain_tokens.h"
#include "lockstep/models/detail/settings_check.h"
#include "lockstep/parallel/tensor/run_dropout.h"
#include "lockstep/parallel/tensor/vocab_cross_entropy.h"
#include "lockstep/parallel/tensor/vocab_embedding.h"
#include "lockstep/parallel/tensor/vocab_head.h"
#include "lockstep/torch_inside/layer_scope.h"
#include "lockstep/torch_inside/recompute.h"

namespace lockstep::models {
namespace {

void require_divides(const char* field, int64_t value, const char* by, int64_t divisor) {
  if (value % divisor == 0) return;
  throw UsageError(base::str(field, " ", value, " does not divide by ", by, " ", divisor));
}

void check(const DecoderSettings& settings) {
  require_size("vocab", settings.vocab);
  require_size("layers", settings.layers);
  require_size("heads", settings.heads);
  require_size("kv_heads", settings.kv_heads);
  require_size("width", settings.width);
  require_size("ffn", settings.ffn);
  require_size("context", settings.context);
  require_divides("model.width", settings.width, "model.heads", settings.heads);
  require_divides("model.heads", settings.heads, "model.kv_heads", settings.kv_heads);
  require_dropout(settings.dropout);
  require_positive("norm_eps", settings.norm_eps);
  require_positive("rope_theta", settings.rope_theta);
  require_positive("init_std", settings.init_std);
  const char* const grains = "the number of tensor grains (numerics.tensor_grains)";
  require_divides("model.heads", settings.heads, grains, settings.tensor.grains);
  require_divides("model.kv_heads", settings.kv_heads, grains, settings.tensor.grains);
  require_divides("model.ffn", settings.ffn, grains, settings.tensor.grains);
  require_divides("model.context", settings.context, grains, settings.tensor.grains);
  if (settings.sequence.grains > 1) {
    require_divides("model.context", settings.context,
                    "twice the number of context grains (numerics.context_grains)",
                    2 * settings.sequence.grains);
    require_divides("model.context over the context grains",
                    settings.context / settings.sequence.grains, grains, settings.tensor.grains);
  }
  if (settings.style == DecoderStyle::gpt2) {
    if (settings.kv_heads != settings.heads) {
      throw UsageError(
          base::str("model.kv_heads is ", settings.kv_heads,
                    ", but gpt2 has keys and values for each of its ", settings.heads,
                    " heads.\n  Set model.kv_heads = 0, or model.family = \"llama\"."));
    }
    return;
  }
  if (settings.bias) {
    throw UsageError(
        "model.bias is true, but the family llama has no biases: set model.bias = false");
  }
  if (settings.width / settings.heads % 2 != 0) {
    throw UsageError(base::str("model.width ", settings.width, " over ", settings.heads,
                               " heads leaves ", settings.width / settings.heads,
                               " features a head, but rotary positions turn pairs of them.",
                               "\n  Choose an even width of a head."));
  }
}

/// [B, S] -> [T, B, S/T]: the order of rows over several grains.
at::Tensor slice_major(const at::Tensor& x_BS, int64_t grains) {
  return x_BS.reshape({x_BS.size(0), grains, -1}).transpose(0, 1).contiguous();
}

/// Without what says which grain it is.
std::string logical_path(const std::string& path) { return path.substr(0, path.find('@')); }

}  // namespace

int64_t llama_ffn(int64_t width) { return ((8 * width + 2) / 3 + 31) / 32 * 32; }

Decoder::Decoder(const DecoderSettings& settings) : settings_(settings) {
  if (settings_.kv_heads == 0) settings_.kv_heads = settings_.heads;
  check(settings_);
  if (settings_.chunks.empty()) settings_.chunks = plan::cut_layers(settings.layers, 1);
  weights_.push_back(make_weights(*this));
  const plan::LeafRange grains = settings.sequence.local;
  if (grains.size() > 1) {
    const auto further = register_module("context", std::make_shared<torch::nn::Module>());
    for (int grain = grains.lo + 1; grain < grains.hi; ++grain) {
      weights_.push_back(make_weights(
          *further->register_module(std::to_string(grain), std::make_shared<torch::nn::Module>())));
    }
  }
  for (const auto& item : named_modules(/*name_prefix=*/"", /*include_self=*/false)) {
    const auto* matrix = item.value()->as<GrainMatrix>();
    if (matrix == nullptr) continue;
    for (const auto& parameter : matrix->named_parameters(/*recurse=*/false)) {
      plan::TensorSlice slice = matrix->slice_of(parameter.key());
      if (slice.logical.empty()) continue;
      slice.logical = base::str(item.key(), ".", slice.logical);
      slices_[base::str(item.key(), ".", parameter.key())] = std::move(slice);
    }
  }
}

Decoder::~Decoder() = default;

Decoder::Weights Decoder::make_weights(torch::nn::Module& root) const {
  const auto any = [&](bool plan::ModelChunk::*has) {
    return std::any_of(settings_.chunks.begin(), settings_.chunks.end(),
                       [has](const plan::ModelChunk& chunk) { return chunk.*has; });
  };
  const int64_t width = settings_.width;
  const bool llama = settings_.style == DecoderStyle::llama;
  const auto table = [&] {
    return std::make_shared<GrainMatrix>(std::vector<int64_t>{settings_.vocab}, width, false,
                                         Cut::rows, settings_.tensor);
  };
  Weights weights;
  if (any(&plan::ModelChunk::embeds)) {
    weights.wte = root.register_module("wte", table());
    if (!llama) {
      weights.wpe =
          root.register_module("wpe", std::make_shared<Matrix>(settings_.context, width, false));
    }
  }
  const auto list = root.register_module("h", std::make_shared<torch::nn::Module>());
  for (const plan::ModelChunk& chunk : settings_.chunks) {
    for (int64_t layer = chunk.first_layer; layer < chunk.last_layer; ++layer) {
      weights.blocks[layer] = list->register_module(
          std::to_string(layer), std::make_shared<DecoderBlock>(settings_, base::str("h.", layer)));
    }
  }
  if (any(&plan::ModelChunk::heads)) {
    weights.ln_f = root.register_module(
        "ln_f", std::make_shared<Norm>(llama ? Norm::Kind::rms : Norm::Kind::layer, width,
                                       settings_.bias, settings_.norm_eps));
    weights.lm_head = root.register_module("lm_head", table());
  }
  return weights;
}

parallel::TensorGroup Decoder::group_of(const RankContext& context) const {
  LOCKSTEP_ASSERT(context.tp != nullptr || settings_.tensor.by_rank.size() == 1,
                  "a rank that has a part of the grains has a group for the others");
  return {context.tp, settings_.tensor, context.weight_queue, settings_.arithmetic};
}

at::Tensor Decoder::embed(const at::Tensor& ids_BS, const RankContext& context) {
  const int64_t B = ids_BS.size(0), S = ids_BS.size(1), T = settings_.tensor.grains;
  if (S > settings_.context) {
    throw UsageError(
        base::str("a sequence of ", S, " tokens does not fit model.context ", settings_.context));
  }
  require_divides("a sequence of", S, "the number of tensor grains", T);
  const Weights& weights = weights_.front();
  const at::Tensor positions = weights.wpe ? weights.wpe->weight.narrow(0, 0, S) : at::Tensor();
  const at::Tensor x = embed_rows(weights, ids_BS, positions, context);
  return parallel::run_dropout(
      x, parallel::token_runs(group_of(context).slices(), B, S / T * settings_.width),
      settings_.dropout, context, "embedding", "residual");
}

/// Rows of the table, and positions [S, D] if there are any.
at::Tensor Decoder::embed_rows(const Weights& weights, const at::Tensor& ids,
                               const at::Tensor& positions, const RankContext& context) const {
  const int64_t T = settings_.tensor.grains;
  if (T > 1) {
    return parallel::vocab_embedding(group_of(context), slice_major(ids, T), weights.wte->weights,
                                     positions, settings_.vocab);
  }
  if (settings_.arithmetic.fused) {
    return fused::embedding(ids, weights.wte->weights[0], positions);
  }
  const at::Tensor x = at::embedding(weights.wte->weights[0], ids);
  return positions.defined() ? x + positions : x;
}

at::Tensor Decoder::run_blocks(at::Tensor x, const plan::ModelChunk& chunk,
                               const RankContext& context) {
  const int64_t T = settings_.tensor.grains;
  const DecoderConstants& of_length = constants(T == 1 ? x.size(1) : T * x.size(2));
  for (int64_t layer = chunk.first_layer; layer < chunk.last_layer; ++layer) {
    const auto forward = [block = weights_.front().blocks.at(layer), of_length,
                          context](const at::Tensor& in) {
      return block->forward(in, of_length, context);
    };
    x = settings_.recompute == plan::Recompute::block ? checkpoint(forward, x) : forward(x);
    if (context.see_activation) context.see_activation(base::str("h.", layer), x);
  }
  return x;
}

std::vector<at::Tensor> Decoder::head(const Weights& weights, const at::Tensor& x,
                                      const RankContext& context) const {
  const parallel::TensorGroup group = group_of(context);
  return weights.lm_head->by_rows(group, weights.ln_f->forward(group, x),
                                  {.gather_again = settings_.gather_again});
}

at::Tensor Decoder::losses(const Weights& weights, const at::Tensor& x,
                           const at::Tensor& targets_BS, const RankContext& context) const {
  const parallel::TensorGroup group = group_of(context);
  const at::Tensor y = weights.ln_f->forward(group, x);
  const torch_inside::LayerScope layer("loss");
  const auto of = [&](const at::Tensor& targets) {
    return parallel::head_losses(group, y, weights.lm_head->weights, targets.reshape({-1}),
                                 settings_.vocab, {.gather_again = settings_.gather_again});
  };
  const int64_t T = settings_.tensor.grains;
  if (T == 1) return of(targets_BS);
  const at::Tensor targets = slice_major(targets_BS, T);
  return of(targets).view(targets.sizes()).transpose(0, 1).reshape({-1});
}

at::Tensor Decoder::logits(const at::Tensor& ids_BS, const RankContext& context) {
  const plan::ModelChunk& all = settings_.chunks.front();
  LOCKSTEP_ASSERT(all.embeds && all.heads, "a stage has no logits of its own");
  const int64_t B = ids_BS.size(0), S = ids_BS.size(1), T = settings_.tensor.grains;
  const Weights& weights = weights_.front();
  if (T == 1) return head(weights, run_blocks(embed(ids_BS, context), all, context), context)[0];
  const at::NoGradGuard no_graph;
  // A text of any length: no token sees the ones that fill it up.
  const at::Tensor filled = at::constant_pad_nd(ids_BS, {0, (T - S % T) % T});
  std::vector<at::Tensor> grains =
      head(weights, run_blocks(embed(filled, context), all, context), context);
  for (at::Tensor& l : grains) l = l.flatten(0, -2);
  return parallel::whole_logits(group_of(context), grains, settings_.vocab)
      .reshape({T, B, -1, settings_.vocab})
      .transpose(0, 1)
      .reshape({B, filled.size(1), settings_.vocab})
      .narrow(1, 0, S);
}

at::Tensor Decoder::token_losses(const at::Tensor& ids_BS, const at::Tensor& targets_BS,
                                 const RankContext& context) {
  const plan::ModelChunk& all = settings_.chunks.front();
  LOCKSTEP_ASSERT(all.embeds && all.heads, "a stage has no losses of its own");
  return run_chunk(0, ids_BS, targets_BS, context);
}

at::Tensor Decoder::run_chunk(int chunk, const at::Tensor& in, const at::Tensor& targets_BS,
                              const RankContext& context) {
  const plan::ModelChunk& piece = settings_.chunks[static_cast<size_t>(chunk)];
  if (settings_.sequence.grains > 1) return run_grains(piece, in, targets_BS, context);
  const at::Tensor x = run_blocks(piece.embeds ? embed(in, context) : in, piece, context);
  return piece.heads ? losses(weights_.front(), x, targets_BS, context) : x;
}

GrainTokens Decoder::tokens_of(size_t index, int64_t sequence) const {
  const plan::ContextPlace& place = settings_.sequence;
  return {place.local.lo + static_cast<int>(index), place.grains, sequence};
}

/// A piece over context grains: each goes its own way, and attention brings them together.
at::Tensor Decoder::run_grains(const plan::ModelChunk& piece, const at::Tensor& in,
                               const at::Tensor& targets_BS, const RankContext& context) {
  const int64_t S = targets_BS.size(1);
  require_divides("a sequence of", S, "twice the number of context grains",
                  2 * settings_.sequence.grains);
  std::vector<at::Tensor> embedded;
  for (size_t i = 0; piece.embeds && i < weights_.size(); ++i) {
    embedded.push_back(embed_grain(i, in, context));
  }
  at::Tensor x = piece.embeds ? at::stack(embedded) : in;
  const std::vector<DecoderConstants> of_grains = constants_of_grains(S);
  for (int64_t layer = piece.first_layer; layer < piece.last_layer; ++layer) {
    std::vector<std::shared_ptr<const DecoderBlock>> blocks;
    for (const Weights& weights : weights_) blocks.push_back(weights.blocks.at(layer));
    const auto forward = [blocks, of_grains, context](const at::Tensor& grains) {
      return forward_grains(blocks, grains, of_grains, context);
    };
    x = settings_.recompute == plan::Recompute::block ? checkpoint(forward, x) : forward(x);
    if (context.see_activation) context.see_activation(base::str("h.", layer), x);
  }
  if (!piece.heads) return x;
  std::vector<at::Tensor> of_grain;
  for (size_t i = 0; i < weights_.size(); ++i) {
    of_grain.push_back(losses(weights_[i], x.select(0, static_cast<int64_t>(i)),
                              tokens_of(i, S).of(targets_BS, 1), context));
  }
  return at::cat(of_grain);
}

at::Tensor Decoder::embed_grain(size_t index, const at::Tensor& ids_BS,
                                const RankContext& context) const {
  const GrainTokens tokens = tokens_of(index, ids_BS.size(1));
  const Weights& weights = weights_[index];
  GrainTokens seen = tokens;
  if (base::planted(base::Fault::same_context_positions) && context.cp) seen.grain = 0;
  const at::Tensor positions = weights.wpe ? seen.of(weights.wpe->weight, 0) : at::Tensor();
  const at::Tensor x = embed_rows(weights, tokens.of(ids_BS, 1), positions, context);
  return parallel::run_dropout(x,
                               tokens.runs(group_of(context).slices(), settings_.tensor.grains,
                                           ids_BS.size(0), settings_.width),
                               settings_.dropout, context, "embedding", "residual");
}

std::vector<DecoderConstants> Decoder::constants_of_grains(int64_t sequence) {
  const bool llama = settings_.style == DecoderStyle::llama;
  RotaryTable whole;
  if (llama) {
    whole = rotary_table(sequence, settings_.width / settings_.heads, settings_.rope_theta);
  }
  std::vector<DecoderConstants> of_grains;
  for (size_t i = 0; i < weights_.size(); ++i) {
    DecoderConstants& constants = of_grains.emplace_back();
    constants.tokens = tokens_of(i, sequence);
    if (llama) constants.rotary = constants.tokens.of(whole);
  }
  return of_grains;
}

int Decoder::chunk_of(const std::string& path) const {
  for (size_t c = 0; c < settings_.chunks.size(); ++c) {
    const plan::ModelChunk& chunk = settings_.chunks[c];
    const bool embeds = path.starts_with("wte.") || path.starts_with("wpe.");
    if (path.starts_with("h.")) {
      const int64_t layer = std::stoll(path.substr(2));
      if (layer >= chunk.first_layer && layer < chunk.last_layer) return static_cast<int>(c);
    } else if (embeds ? chunk.embeds : chunk.heads) {
      return static_cast<int>(c);
    }
  }
  LOCKSTEP_ASSERT(false, "a stage asks for its own parameters");
  return 0;
}

plan::TensorSlice Decoder::slice_of(const std::string& path) const {
  const auto found = slices_.find(path);
  return found == slices_.end() ? plan::TensorSlice{} : found->second;
}

const DecoderConstants& Decoder::constants(int64_t sequence) {
  if (constants_ == nullptr || constants_->sequence != sequence) {
    const int64_t queries_of_a_key = settings_.heads / settings_.kv_heads;
    constants_ = std::make_unique<DecoderConstants>();
    constants_->sequence = sequence;
    if (!settings_.arithmetic.fused) {
      constants_->mask =
          at::full({sequence, sequence}, -std::numeric_limits<float>::infinity(), at::kFloat)
              .triu(1)
              .repeat({queries_of_a_key, 1});
    }
    if (settings_.style == DecoderStyle::llama) {
      constants_->rotary =
          rotary_table(sequence, settings_.width / settings_.heads, settings_.rope_theta);
    }
  }
  return *constants_;
}

plan::Init Decoder::init_of(const std::string& path_of_grain) const {
  using Kind = plan::Init::Kind;
  const std::string path = logical_path(path_of_grain);
  if (path.ends_with(".bias")) return {.kind = Kind::zeros};
  if (path.ends_with("ln_1.weight") || path.ends_with("ln_2.weight") || path == "ln_f.weight") {
    return {.kind = Kind::ones};
  }
  const double scale = path.ends_with(".c_proj.weight")
                           ? 1 / std::sqrt(2 * static_cast<double>(settings_.layers))
                           : 1;
  return {.kind = Kind::normal, .std = settings_.init_std * scale};
}

std::vector<plan::Tie> Decoder::ties() const {
  if (!settings_.tied) return {};
  if (settings_.tensor.grains == 1) return {{.use = "lm_head.weight", .of = "wte.weight"}};
  std::vector<plan::Tie> ties;
  for (int t = settings_.tensor.local.lo; t < settings_.tensor.local.hi; ++t) {
    ties.push_back({.use = base::str("lm_head.weight@", t), .of = base::str("wte.weight@", t)});
  }
  return ties;
}

double Decoder::flops_per_token() const {
  // Of the whole model, of which a rank holds a part.
  const int64_t D = settings_.width, F = settings_.ffn, bias = settings_.bias ? 1 : 0;
  const int64_t rows = D + 2 * settings_.kv_heads * (D / settings_.heads);  // of c_attn
  const int64_t into = settings_.style == DecoderStyle::llama ? 2 * F : F;  // of the feed-forward
  const int64_t norm = D * (1 + bias);
  const int64_t block =
      2 * norm + rows * (D + bias) + D * (D + bias) + into * (D + bias) + D * (F + bias);
  const int64_t tables = (settings_.tied ? 1 : 2) * settings_.vocab * D;
  const int64_t count = settings_.layers * block + norm + tables;
  return 6.0 * static_cast<double>(count) +
         12.0 * static_cast<double>(settings_.layers * settings_.width * settings_.context);
}

}  // namespace lockstep::models
