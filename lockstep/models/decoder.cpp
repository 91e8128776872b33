#include "lockstep/models/decoder.h"

#include <ATen/ops/add.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/unbind.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/models/detail/settings_check.h"
#include "lockstep/models/dropout.h"
#include "lockstep/torch_inside/layer_scope.h"
#include "lockstep/torch_inside/recompute.h"

namespace lockstep::models {
namespace {

void check(const DecoderSettings& settings) {
  require_size("vocab", settings.vocab);
  require_size("layers", settings.layers);
  require_size("heads", settings.heads);
  require_size("width", settings.width);
  require_size("ffn", settings.ffn);
  require_size("context", settings.context);
  if (settings.width % settings.heads != 0) {
    throw UsageError(base::str("model.width ", settings.width, " does not divide by model.heads ",
                               settings.heads));
  }
  require_dropout(settings.dropout);
  require_positive("norm_eps", settings.norm_eps);
  require_positive("init_std", settings.init_std);
}

// Holds c_attn and c_proj, or c_fc and c_proj, under the names that the parameters have.
struct Pair final : torch::nn::Module {
  Pair(const char* in_name, int64_t width, int64_t inner_in, int64_t inner_out, bool bias) {
    in = register_module(in_name, std::make_shared<Matrix>(inner_in, width, bias));
    out = register_module("c_proj", std::make_shared<Matrix>(width, inner_out, bias));
  }

  std::shared_ptr<Matrix> in;
  std::shared_ptr<Matrix> out;
};

}  // namespace

// Shapes: B samples, S sequence, D width, H heads, K width of a head, F feed-forward; Z = B * H.
struct Decoder::Block final : torch::nn::Module {
  Block(const DecoderSettings& settings, std::string path)
      : heads(settings.heads),
        dropout(settings.dropout),
        recompute_core(settings.recompute == plan::Recompute::selective),
        attn_path(path + ".attn"),
        mlp_path(path + ".mlp") {
    const int64_t width = settings.width;
    const bool bias = settings.bias;
    const auto norm = [&] { return std::make_shared<Norm>(width, bias, settings.norm_eps); };
    ln_1 = register_module("ln_1", norm());
    attn = register_module("attn", std::make_shared<Pair>("c_attn", width, 3 * width, width, bias));
    ln_2 = register_module("ln_2", norm());
    mlp = register_module("mlp",
                          std::make_shared<Pair>("c_fc", width, settings.ffn, settings.ffn, bias));
  }

  at::Tensor forward(const at::Tensor& x_BSD, const at::Tensor& mask_SS,
                     const RankContext& context) const {
    const at::Tensor y_BSD = x_BSD + attention(ln_1->forward(x_BSD), mask_SS, context);
    return y_BSD + feed_forward(ln_2->forward(y_BSD), context);
  }

  at::Tensor attention(const at::Tensor& x_BSD, const at::Tensor& mask_SS,
                       const RankContext& context) const {
    const int64_t B = x_BSD.size(0), S = x_BSD.size(1), D = x_BSD.size(2), H = heads, K = D / H;
    const torch_inside::LayerScope layer(attn_path);
    // One copy brings each head's rows together; products then run on plain matrices.
    const std::vector<at::Tensor> qkv_ZSK = at::unbind(attn->in->linear(x_BSD)
                                                           .view({B, S, 3, H, K})
                                                           .permute({2, 0, 3, 1, 4})
                                                           .reshape({3, B * H, S, K}));
    const auto mix = [self = shared_from_this(), this, B, mask_SS, context](
                         const at::Tensor& q_ZSK, const at::Tensor& k_ZSK,
                         const at::Tensor& v_ZSK) {
      return core(q_ZSK, k_ZSK, v_ZSK, B, mask_SS, context);
    };
    const at::Tensor mixed_BSD =
        (recompute_core ? checkpoint(mix, qkv_ZSK[0], qkv_ZSK[1], qkv_ZSK[2])
                        : mix(qkv_ZSK[0], qkv_ZSK[1], qkv_ZSK[2]))
            .view({B, H, S, K})
            .transpose(1, 2)
            .reshape({B, S, D});
    return models::dropout(attn->out->linear(mixed_BSD), B, dropout, context, attn_path,
                           "residual");
  }

  /// Per byte that it would keep, the part of a block that is the fastest to compute again.
  at::Tensor core(const at::Tensor& q_ZSK, const at::Tensor& k_ZSK, const at::Tensor& v_ZSK,
                  int64_t samples, const at::Tensor& mask_SS, const RankContext& context) const {
    const torch_inside::LayerScope layer(attn_path);
    const at::Tensor scores_ZSS =
        at::baddbmm(mask_SS, q_ZSK, k_ZSK.transpose(1, 2), /*beta=*/1,
                    /*alpha=*/1 / std::sqrt(static_cast<double>(q_ZSK.size(2))));
    const at::Tensor shares_ZSS = models::dropout(at::softmax(scores_ZSS, -1), samples, dropout,
                                                  context, attn_path, "probabilities");
    return at::bmm(shares_ZSS, v_ZSK);
  }

  at::Tensor feed_forward(const at::Tensor& x_BSD, const RankContext& context) const {
    const torch_inside::LayerScope layer(mlp_path);
    const at::Tensor h_BSF = at::gelu(mlp->in->linear(x_BSD), "tanh");
    return models::dropout(mlp->out->linear(h_BSF), x_BSD.size(0), dropout, context, mlp_path,
                           "residual");
  }

  int64_t heads;
  double dropout;
  bool recompute_core;
  std::string attn_path;  // layer names in dropout keys
  std::string mlp_path;
  std::shared_ptr<Norm> ln_1;
  std::shared_ptr<Pair> attn;
  std::shared_ptr<Norm> ln_2;
  std::shared_ptr<Pair> mlp;
};

Decoder::Decoder(const DecoderSettings& settings) : settings_(settings) {
  check(settings);
  if (settings_.chunks.empty()) settings_.chunks = plan::cut_layers(settings.layers, 1);
  const auto any = [&](bool plan::ModelChunk::*has) {
    return std::any_of(settings_.chunks.begin(), settings_.chunks.end(),
                       [has](const plan::ModelChunk& chunk) { return chunk.*has; });
  };
  const int64_t width = settings.width;
  if (any(&plan::ModelChunk::embeds)) {
    wte_ = register_module("wte", std::make_shared<Matrix>(settings.vocab, width, false));
    wpe_ = register_module("wpe", std::make_shared<Matrix>(settings.context, width, false));
  }
  const auto list = register_module("h", std::make_shared<torch::nn::Module>());
  for (const plan::ModelChunk& chunk : settings_.chunks) {
    for (int64_t layer = chunk.first_layer; layer < chunk.last_layer; ++layer) {
      blocks_[layer] = list->register_module(
          std::to_string(layer), std::make_shared<Block>(settings, base::str("h.", layer)));
    }
  }
  if (any(&plan::ModelChunk::heads)) {
    ln_f_ =
        register_module("ln_f", std::make_shared<Norm>(width, settings.bias, settings.norm_eps));
    lm_head_ = register_module("lm_head", std::make_shared<Matrix>(settings.vocab, width, false));
  }
}

Decoder::~Decoder() = default;

at::Tensor Decoder::embed(const at::Tensor& ids_BS, const RankContext& context) {
  const int64_t B = ids_BS.size(0), S = ids_BS.size(1);
  if (S > settings_.context) {
    throw UsageError(
        base::str("a sequence of ", S, " tokens does not fit model.context ", settings_.context));
  }
  return dropout(at::embedding(wte_->weight, ids_BS) + wpe_->weight.narrow(0, 0, S), B,
                 settings_.dropout, context, "embedding", "residual");
}

at::Tensor Decoder::run_blocks(at::Tensor x_BSD, const plan::ModelChunk& chunk,
                               const RankContext& context) {
  const at::Tensor& mask_SS = causal_mask(x_BSD.size(1));
  for (int64_t layer = chunk.first_layer; layer < chunk.last_layer; ++layer) {
    const auto forward = [block = blocks_.at(layer), mask_SS, context](const at::Tensor& in_BSD) {
      return block->forward(in_BSD, mask_SS, context);
    };
    x_BSD =
        settings_.recompute == plan::Recompute::block ? checkpoint(forward, x_BSD) : forward(x_BSD);
  }
  return x_BSD;
}

at::Tensor Decoder::logits(const at::Tensor& ids_BS, const RankContext& context) {
  const plan::ModelChunk& all = settings_.chunks.front();
  LOCKSTEP_ASSERT(all.embeds && all.heads, "a stage has no logits of its own");
  const at::Tensor x_BSD = run_blocks(embed(ids_BS, context), all, context);
  return lm_head_->linear(ln_f_->forward(x_BSD));
}

at::Tensor Decoder::run_chunk(int chunk, const at::Tensor& in, const at::Tensor& targets_BS,
                              const RankContext& context) {
  const plan::ModelChunk& piece = settings_.chunks[static_cast<size_t>(chunk)];
  const at::Tensor x_BSD = run_blocks(piece.embeds ? embed(in, context) : in, piece, context);
  if (!piece.heads) return x_BSD;
  return losses_of(lm_head_->linear(ln_f_->forward(x_BSD)), targets_BS);
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

const at::Tensor& Decoder::causal_mask(int64_t size) {
  if (!mask_.defined() || mask_.size(0) != size) {
    mask_ = at::full({size, size}, -std::numeric_limits<float>::infinity(), at::kFloat).triu(1);
  }
  return mask_;
}

plan::Init Decoder::init_of(const std::string& path) const {
  using Kind = plan::Init::Kind;
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
  return {{.use = "lm_head.weight", .of = "wte.weight"}};
}

double Decoder::flops_per_token() const {
  // Of the whole model, of which a stage holds a part.
  const int64_t D = settings_.width, F = settings_.ffn, bias = settings_.bias ? 1 : 0;
  const int64_t norm = D * (1 + bias);
  const int64_t block = 2 * norm + 4 * D * (D + bias) + F * (D + bias) + D * (F + bias);
  const int64_t tables = (settings_.tied ? 1 : 2) * settings_.vocab * D;
  const int64_t count = settings_.layers * block + norm + tables;
  return 6.0 * static_cast<double>(count) +
         12.0 * static_cast<double>(settings_.layers * settings_.width * settings_.context);
}

}  // namespace lockstep::models
