#include "lockstep/models/detail/decoder_block.h"

#include <ATen/ops/add.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/unbind.h>

#include <cmath>
#include <utility>

#include "lockstep/base/planted_fault.h"
#include "lockstep/fused/attention.h"
#include "lockstep/fused/gelu.h"
#include "lockstep/fused/swiglu.h"
#include "lockstep/parallel/context/ring_attention.h"
#include "lockstep/parallel/tensor/run_dropout.h"
#include "lockstep/torch_inside/layer_scope.h"
#include "lockstep/torch_inside/recompute.h"

namespace lockstep::models {

// Holds c_attn and c_proj, or c_fc (gate_up) and c_proj, under the names that the parameters have.
struct DecoderBlock::Pair final : torch::nn::Module {
  Pair(const char* in_name, std::vector<int64_t> in_blocks, int64_t inner,
       const DecoderSettings& settings) {
    const int64_t D = settings.width;
    in = register_module(
        in_name, std::make_shared<GrainMatrix>(std::move(in_blocks), D, settings.bias, Cut::rows,
                                               settings.tensor));
    out = register_module(
        "c_proj", std::make_shared<GrainMatrix>(std::vector<int64_t>{D}, inner, settings.bias,
                                                Cut::columns, settings.tensor));
  }

  std::shared_ptr<GrainMatrix> in;
  std::shared_ptr<GrainMatrix> out;
};

/// Of a grain, as plain matrices: the G queries of a head of keys lie one after the other.
struct DecoderBlock::Heads {
  at::Tensor q;  // [B j, G S, K]
  at::Tensor k;  // [B j, S, K]
  at::Tensor v;
};

DecoderBlock::DecoderBlock(const DecoderSettings& settings, const std::string& path)
    : settings_(settings), attn_path_(path + ".attn"), mlp_path_(path + ".mlp") {
  const int64_t D = settings.width, F = settings.ffn;
  const int64_t of_keys = settings.kv_heads * (D / settings.heads);
  const bool llama = settings.style == DecoderStyle::llama;
  const auto norm = [&] {
    return std::make_shared<Norm>(llama ? Norm::Kind::rms : Norm::Kind::layer, D, settings.bias,
                                  settings.norm_eps);
  };
  ln_1_ = register_module("ln_1", norm());
  attn_ = register_module(
      "attn",
      std::make_shared<Pair>("c_attn", std::vector<int64_t>{D, of_keys, of_keys}, D, settings));
  ln_2_ = register_module("ln_2", norm());
  mlp_ = register_module(
      "mlp", llama ? std::make_shared<Pair>("gate_up", std::vector<int64_t>{F, F}, F, settings)
                   : std::make_shared<Pair>("c_fc", std::vector<int64_t>{F}, F, settings));
}

parallel::TensorGroup DecoderBlock::group_of(const RankContext& context) const {
  return {context.tp, settings_.tensor, context.weight_queue, settings_.arithmetic};
}

DecoderBlock::Stream DecoderBlock::stream_of(const at::Tensor& x) const {
  const int T = settings_.tensor.grains;
  if (T == 1) return {1, x.size(0), x.size(1), x.size(2)};
  return {T, x.size(1), x.size(2), x.size(3)};
}

at::Tensor DecoderBlock::forward(const at::Tensor& x, const DecoderConstants& constants,
                                 const RankContext& context) const {
  const parallel::TensorGroup group = group_of(context);
  auto [y, normed] =
      ln_2_->after(group, x, attention(ln_1_->forward(group, x), constants, context));
  return y + feed_forward(std::move(normed), constants.tokens, context);
}

at::Tensor DecoderBlock::attention(at::Tensor x, const DecoderConstants& constants,
                                   const RankContext& context) const {
  const torch_inside::LayerScope layer(attn_path_);
  const parallel::TensorGroup group = group_of(context);
  const Stream stream = stream_of(x);
  std::vector<at::Tensor> mixed;
  std::vector<at::Tensor> y =
      attn_->in->by_rows(group, x, {.gather_again = settings_.gather_again});
  x.reset();  // products that read copies of it have theirs
  for (at::Tensor& of_grain : y) {
    const int grain = group.place.local.lo + static_cast<int>(mixed.size());
    mixed.push_back(attend(std::move(of_grain), grain, stream, constants, context));
  }
  return residual_dropout(attn_->out->by_columns(group, mixed), stream, constants.tokens,
                          attn_path_, context);
}

/// One copy brings each head's rows together; products then run on plain matrices.
DecoderBlock::Heads DecoderBlock::heads_of(at::Tensor y, const Stream& stream,
                                           const DecoderConstants& constants) const {
  const auto [T, B, s, D] = stream;
  const int64_t S = T * s, K = D / settings_.heads;
  const int64_t j = settings_.kv_heads / T, G = settings_.heads / settings_.kv_heads;
  if (settings_.style == DecoderStyle::gpt2) {
    const std::vector<at::Tensor> qkv = at::unbind(
        y.view({T, B, s, 3, j, K}).permute({3, 1, 4, 0, 2, 5}).reshape({3, B * j, S, K}));
    return {qkv[0], qkv[1], qkv[2]};
  }
  const std::vector<at::Tensor> qkv = y.split_with_sizes({j * G * K, j * K, j * K}, -1);
  const auto rows = [&](const at::Tensor& x, int64_t heads) {
    return x.reshape({T, B, s, heads, K}).permute({1, 3, 0, 2, 4}).reshape({B * heads, S, K});
  };
  return {rotate(rows(qkv[0], j * G), constants.rotary).view({B * j, G * S, K}),
          rotate(rows(qkv[1], j), constants.rotary), rows(qkv[2], j)};
}

at::Tensor DecoderBlock::attend(at::Tensor y, int grain, const Stream& stream,
                                const DecoderConstants& constants,
                                const RankContext& context) const {
  if (settings_.arithmetic.fused) return fused_attend(y, grain, stream, constants, context);
  const int64_t B = stream.B;
  const Heads heads = heads_of(std::move(y), stream, constants);
  const auto mix = [self = shared_from_this(), this, grain, samples = B, mask = constants.mask,
                    context](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    return core({q, k, v}, grain, samples, mask, context);
  };
  const at::Tensor mixed = settings_.recompute == plan::Recompute::selective
                               ? checkpoint(mix, heads.q, heads.k, heads.v)
                               : mix(heads.q, heads.k, heads.v);
  return heads_to_rows(mixed, stream);
}

/// The same in one kernel, which keeps no scores: there is nothing for selective recompute to do.
at::Tensor DecoderBlock::fused_attend(const at::Tensor& y, int grain, const Stream& stream,
                                      const DecoderConstants& constants,
                                      const RankContext& context) const {
  const int64_t T = stream.T, h = settings_.heads / T, K = stream.D / settings_.heads;
  fused::AttentionSettings attention{.arithmetic = settings_.arithmetic,
                                     .heads = h,
                                     .kv_heads = settings_.kv_heads / T,
                                     .scale = 1 / std::sqrt(static_cast<double>(K)),
                                     .cos = constants.rotary.cos,
                                     .sin = constants.rotary.sin,
                                     .first_head = grain * h};
  if (settings_.dropout > 0 && context.training) {
    attention.dropout = settings_.dropout;
    for (int64_t sample = 0; sample < stream.B; ++sample) {
      attention.keys.push_back(context.sample_key(attn_path_, "probabilities", sample));
    }
  }
  if (base::planted(base::Fault::same_heads_everywhere)) attention.first_head = 0;
  return fused::attention(y, attention);
}

/// What a grain's heads give, as rows of its column-parallel map.
at::Tensor DecoderBlock::heads_to_rows(const at::Tensor& mixed, const Stream& stream) const {
  const auto [T, B, s, D] = stream;
  const int64_t h = settings_.heads / T, K = D / settings_.heads;
  const at::Tensor rows = mixed.view({B, h, T, s, K}).permute({2, 0, 3, 1, 4});
  return T == 1 ? rows.reshape({B, s, h * K}) : rows.reshape({T, B, s, h * K});
}

/// Per byte that it would keep, the part of a block that is the fastest to compute again.
at::Tensor DecoderBlock::core(const Heads& heads, int grain, int64_t samples,
                              const at::Tensor& mask, const RankContext& context) const {
  const torch_inside::LayerScope layer(attn_path_);
  const at::Tensor scores =
      at::baddbmm(mask, heads.q, heads.k.transpose(1, 2), /*beta=*/1,
                  /*alpha=*/1 / std::sqrt(static_cast<double>(heads.q.size(2))));
  const std::vector<parallel::Run> runs =
      parallel::head_runs(grain, samples, scores.numel() / samples);
  const at::Tensor shares = parallel::run_dropout(at::softmax(scores, -1), runs, settings_.dropout,
                                                  context, attn_path_, "probabilities");
  return at::bmm(shares, heads.v);
}

at::Tensor DecoderBlock::feed_forward(at::Tensor x, const GrainTokens& tokens,
                                      const RankContext& context) const {
  const torch_inside::LayerScope layer(mlp_path_);
  const parallel::TensorGroup group = group_of(context);
  const Stream stream = stream_of(x);
  std::vector<at::Tensor> inner =
      mlp_->in->by_rows(group, x, {.gather_again = settings_.gather_again});
  x.reset();
  for (at::Tensor& h : inner) {
    if (settings_.arithmetic.fused) {
      h = settings_.style == DecoderStyle::gpt2 ? fused::gelu(h) : fused::swiglu(h);
    } else if (settings_.style == DecoderStyle::gpt2) {
      h = at::gelu(h, "tanh");
    } else {
      const std::vector<at::Tensor> gate_up = h.chunk(2, -1);
      h = at::silu(gate_up[0]) * gate_up[1];
    }
  }
  const at::Tensor out = mlp_->out->by_columns(group, std::exchange(inner, {}));
  return residual_dropout(out, stream, tokens, mlp_path_, context);
}

at::Tensor DecoderBlock::residual_dropout(const at::Tensor& x, const Stream& stream,
                                          const GrainTokens& tokens, const std::string& layer,
                                          const RankContext& context) const {
  const auto [T, B, s, D] = stream;
  const plan::LeafRange slices = group_of(context).slices();
  const std::vector<parallel::Run> runs = tokens.grains > 1
                                              ? tokens.runs(slices, settings_.tensor.grains, B, D)
                                              : parallel::token_runs(slices, B, s * D);
  return parallel::run_dropout(x, runs, settings_.dropout, context, layer, "residual");
}

// ---- over context grains ----

/// Of all tensor grains of this rank, one behind the other: q [n, G, S, K], k and v [n, S, K] with
/// n = tensor grains x samples x heads of keys.
DecoderBlock::Heads DecoderBlock::grain_heads(const at::Tensor& x,
                                              const DecoderConstants& constants,
                                              const RankContext& context) const {
  const torch_inside::LayerScope layer(attn_path_);
  const parallel::TensorGroup group = group_of(context);
  const Stream stream = stream_of(x);
  std::vector<at::Tensor> q, k, v;
  for (at::Tensor& of_grain : attn_->in->by_rows(group, ln_1_->forward(group, x),
                                                 {.gather_again = settings_.gather_again})) {
    const Heads heads = heads_of(std::move(of_grain), stream, constants);
    q.push_back(heads.q);
    k.push_back(heads.k);
    v.push_back(heads.v);
  }
  Heads all{at::cat(q), at::cat(k), at::cat(v)};
  all.q = all.q.view({all.k.size(0), -1, all.k.size(1), all.k.size(2)});
  return all;
}

/// The rest of the layer for a grain, whose attention gave `mixed` [n, G, S, K].
at::Tensor DecoderBlock::after_attention(const at::Tensor& x, const at::Tensor& mixed,
                                         const DecoderConstants& constants,
                                         const RankContext& context) const {
  const parallel::TensorGroup group = group_of(context);
  at::Tensor y;
  {
    const torch_inside::LayerScope layer(attn_path_);
    const Stream stream = stream_of(x);
    std::vector<at::Tensor> rows;
    for (const at::Tensor& of_grain : mixed.chunk(group.local())) {
      rows.push_back(heads_to_rows(of_grain.flatten(0, 1), stream));
    }
    y = residual_dropout(attn_->out->by_columns(group, rows), stream, constants.tokens, attn_path_,
                         context);
  }
  auto [sum, normed] = ln_2_->after(group, x, y);
  return sum + feed_forward(std::move(normed), constants.tokens, context);
}

/// Dropout of probabilities [n, G, rows, columns]: a row of a head is a run of the sample's
/// [H, S, S].
at::Tensor DecoderBlock::kept_shares(int64_t samples, plan::TokenRange queries,
                                     plan::TokenRange keys, int64_t sequence,
                                     const RankContext& context) const {
  const plan::TensorPlace& tensor = settings_.tensor;
  const int64_t heads = settings_.heads / tensor.grains;
  std::vector<parallel::Run> runs;
  for (int64_t grain = tensor.local.lo; grain < tensor.local.hi; ++grain) {
    for (int64_t sample = 0; sample < samples; ++sample) {
      for (int64_t head = grain * heads; head < (grain + 1) * heads; ++head) {
        for (int64_t row = queries.lo; row < queries.hi; ++row) {
          runs.push_back({sample, (head * sequence + row) * sequence + keys.lo});
        }
      }
    }
  }
  const int64_t of_keys = samples * tensor.local.size() * settings_.kv_heads / tensor.grains;
  const at::Tensor ones = at::ones(
      {of_keys, settings_.heads / settings_.kv_heads, queries.hi - queries.lo, keys.hi - keys.lo});
  return parallel::run_dropout(ones, runs, settings_.dropout, context, attn_path_, "probabilities");
}

at::Tensor forward_grains(const std::vector<std::shared_ptr<const DecoderBlock>>& blocks,
                          const at::Tensor& x, const std::vector<DecoderConstants>& constants,
                          const RankContext& context) {
  const std::shared_ptr<const DecoderBlock> first = blocks.front();
  std::vector<at::Tensor> q, k, v;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const DecoderBlock::Heads heads =
        blocks[i]->grain_heads(x.select(0, static_cast<int64_t>(i)), constants[i], context);
    q.push_back(heads.q);
    k.push_back(heads.k);
    v.push_back(heads.v);
  }
  parallel::RingOptions options{.scale = 1 / std::sqrt(static_cast<double>(q[0].size(-1))),
                                .keep = {}};
  if (first->settings_.dropout > 0 && context.training) {
    options.keep = [first, samples = first->stream_of(x.select(0, 0)).B,
                    sequence = constants[0].tokens.sequence,
                    context](plan::TokenRange queries, plan::TokenRange keys) {
      return first->kept_shares(samples, queries, keys, sequence, context);
    };
  }
  at::Tensor mixed;
  {
    const torch_inside::LayerScope layer(first->attn_path_);
    mixed = parallel::ring_attention({context.cp, first->settings_.sequence}, at::stack(q),
                                     at::stack(k), at::stack(v), options);
  }
  std::vector<at::Tensor> out;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto grain = static_cast<int64_t>(i);
    out.push_back(blocks[i]->after_attention(x.select(0, grain), mixed.select(0, grain),
                                             constants[i], context));
  }
  return at::stack(out);
}

}  // namespace lockstep::models
