/// One layer of the decoder, over tensor grains: attention and a feed-forward part, each a
/// column-parallel map, what a grain does alone, and a row-parallel map, with a norm before and the
/// residual around it.
///
///   T = 1: activations [B, S, D]    T > 1: [T, B, S/T, D], slice t holds positions from t S/T on
///
/// A grain has whole heads, so scores, softmax and weighted sum see one grain each, on all layouts.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/rank_context.h"
#include "lockstep/models/decoder.h"
#include "lockstep/models/detail/grain_tokens.h"
#include "lockstep/models/detail/rotary.h"
#include "lockstep/models/layers.h"

namespace lockstep::models {

/// What all layers read and none has a gradient of.
struct DecoderConstants {
  int64_t sequence = 0;
  // [heads of a key * S, S]: 0, and -inf where a query would see a later key. Of LibTorch's
  // operators alone: the fused attention does not look there.
  at::Tensor mask;
  RotaryTable rotary;  // of llama
  GrainTokens tokens;  // over context grains, which have no mask
};

// Shapes: B samples, S sequence, D width, H heads, J heads of keys, G = H / J, K width of a head,
// F feed-forward; h, j, f of a grain.
struct DecoderBlock final : torch::nn::Module {
  DecoderBlock(const DecoderSettings& settings, const std::string& path);

  at::Tensor forward(const at::Tensor& x, const DecoderConstants& constants,
                     const RankContext& context) const;

  /// The same over the context grains [c, ...] of this rank, each with its block: the same layer.
  friend at::Tensor forward_grains(const std::vector<std::shared_ptr<const DecoderBlock>>& blocks,
                                   const at::Tensor& x,
                                   const std::vector<DecoderConstants>& constants,
                                   const RankContext& context);

 private:
  struct Pair;
  struct Heads;

  /// What the residual stream is made of, at the activation `x`.
  struct Stream {
    int64_t T, B, s, D;
  };
  Stream stream_of(const at::Tensor& x) const;

  at::Tensor attention(at::Tensor x, const DecoderConstants& constants,
                       const RankContext& context) const;
  at::Tensor feed_forward(at::Tensor x, const GrainTokens& tokens,
                          const RankContext& context) const;
  at::Tensor residual_dropout(const at::Tensor& x, const Stream& stream, const GrainTokens& tokens,
                              const std::string& layer, const RankContext& context) const;
  at::Tensor heads_to_rows(const at::Tensor& mixed, const Stream& stream) const;
  Heads grain_heads(const at::Tensor& x, const DecoderConstants& constants,
                    const RankContext& context) const;
  at::Tensor after_attention(const at::Tensor& x, const at::Tensor& mixed,
                             const DecoderConstants& constants, const RankContext& context) const;
  at::Tensor kept_shares(int64_t samples, plan::TokenRange queries, plan::TokenRange keys,
                         int64_t sequence, const RankContext& context) const;

  Heads heads_of(at::Tensor y, const Stream& stream, const DecoderConstants& constants) const;
  at::Tensor attend(at::Tensor y, int grain, const Stream& stream,
                    const DecoderConstants& constants, const RankContext& context) const;
  at::Tensor fused_attend(const at::Tensor& y, int grain, const Stream& stream,
                          const DecoderConstants& constants, const RankContext& context) const;
  at::Tensor core(const Heads& heads, int grain, int64_t samples, const at::Tensor& mask,
                  const RankContext& context) const;

  parallel::TensorGroup group_of(const RankContext& context) const;

  DecoderSettings settings_;
  std::string attn_path_;  // layer names in dropout keys
  std::string mlp_path_;
  std::shared_ptr<Norm> ln_1_;
  std::shared_ptr<Pair> attn_;
  std::shared_ptr<Norm> ln_2_;
  std::shared_ptr<Pair> mlp_;
};

at::Tensor forward_grains(const std::vector<std::shared_ptr<const DecoderBlock>>& blocks,
                          const at::Tensor& x, const std::vector<DecoderConstants>& constants,
                          const RankContext& context);

}  // namespace lockstep::models
