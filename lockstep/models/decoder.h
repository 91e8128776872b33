/// A decoder of tokens: norms before each sub-layer, causal attention, a feed-forward part.
///
///   style    norms         positions                 feed-forward                   biases
///   gpt2     layer norm    learned, added to tokens  GELU (tanh form)               if asked for
///   llama    RMS norm      rotary, of q and k        silu(gate) * up (SwiGLU)       none
///
/// Source  Radford et al. 2019, "Language models are unsupervised multitask learners"; Touvron et
///         al. 2023, arXiv:2302.13971; Shazeer 2020, arXiv:2002.05202; Ainslie et al. 2023,
///         arXiv:2305.13245 (grouped heads)
///
/// Parameters, in the order of use; linear weights are (out, in), rows of c_attn q then k then v.
/// H heads and J of keys and values (H, of llama fewer if asked for), K = D / H:
///
///   wte.weight (V, D)  wpe.weight (context, D)                 wpe of gpt2 alone
///   h.N.ln_1.{weight, bias}  h.N.attn.c_attn.{weight ((H + 2 J) K, D), bias}
///                            h.N.attn.c_proj.{weight (D, D), bias}
///   h.N.ln_2.{weight, bias}  h.N.mlp.c_fc.{weight (F, D), bias}       of gpt2
///                            h.N.mlp.gate_up.weight (2 F, D)          of llama: gate, then up
///                            h.N.mlp.c_proj.{weight (D, F), bias}
///   ln_f.{weight, bias}  lm_head.weight (V, D)
///
/// Over T tensor grains (DecoderSettings::tensor), T > 1, weights and the biases of divided rows
/// are a tensor for each grain of this rank, "h.0.attn.c_attn.weight@2" (slice_of): heads,
/// feed-forward width and vocabulary are divided; wpe, norms and c_proj's biases are whole on every
/// rank.
///
/// Over C context grains (DecoderSettings::sequence), C > 1, all of these are there once more for
/// each further grain of this rank, at plan::context_path, to share the storage of the first. A
/// grain's tokens go through the layers by themselves and meet in ring attention.
///
/// A tied head is a leaf of its own that takes the storage of wte.weight (`ties`), so each use has
/// its own gradient.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/fused/product.h"
#include "lockstep/models/language_model.h"
#include "lockstep/models/layers.h"
#include "lockstep/plan/activation_bytes.h"
#include "lockstep/plan/context_place.h"

namespace lockstep::models {

enum class DecoderStyle { gpt2, llama };

struct DecoderSettings {
  DecoderStyle style = DecoderStyle::gpt2;
  int64_t vocab = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // of llama; 0: as many as heads
  int64_t width = 0;
  int64_t ffn = 0;
  int64_t context = 0;
  double dropout = 0;  // of the embedding, the attention probabilities and both branches
  bool tied = true;
  bool bias = true;
  double norm_eps = 1e-5;
  double rope_theta = 10'000;  // of llama
  double init_std = 0.02;
  /// Less memory for more time, and the same bits: plan::decoder_activation_bytes says how much.
  plan::Recompute recompute = plan::Recompute::none;
  /// The pieces that a stage of a pipeline holds; empty: the whole model. Only their parameters are
  /// there, under the names above.
  std::vector<plan::ModelChunk> chunks = {};
  /// The grains that layers are divided into, and those of this rank. Another number of grains is
  /// another run; who has them changes no bit.
  plan::TensorPlace tensor = {};
  /// The grains that sequences are divided into, and those of this rank: the same holds of them.
  plan::ContextPlace sequence = {};
  /// With a divided sequence: less memory for more traffic (parallel/tensor/column_linear.h).
  bool gather_again = false;
  /// Whose kernels compute the layers, and in which type: a part of a run's identity.
  fused::Arithmetic arithmetic = {};
};

/// The inner width that llama has by itself: 8/3 of the width, rounded up to a multiple of 32, so
/// that its three matrices have the size of GPT-2's two.
int64_t llama_ffn(int64_t width);

struct DecoderBlock;
struct DecoderConstants;
struct GrainTokens;

class Decoder final : public LanguageModel {
 public:
  /// Throws UsageError naming field and value: a size below 1, heads that do not divide the width,
  /// kv_heads that do not divide the heads, a dropout outside [0, 1), norm_eps, rope_theta or
  /// init_std that is not positive; tensor grains that do not divide heads, kv_heads, ffn or
  /// context; of llama an odd head and biases.
  explicit Decoder(const DecoderSettings& settings);
  ~Decoder() override;

  /// Throws UsageError for more tokens than the context. Over several tensor grains no graph is
  /// made, and the context's play no part.
  at::Tensor logits(const at::Tensor& ids_BS, const RankContext& context) override;

  /// On every rank of the tensor group all tokens' losses. Over several grains they divide the
  /// sequence, else UsageError.
  at::Tensor token_losses(const at::Tensor& ids_BS, const at::Tensor& targets_BS,
                          const RankContext& context) override;

  /// Between pieces the residual stream travels: [B, S, D], over T > 1 grains [T, B, S/T, D], with
  /// a divided sequence this rank's slices of it; over C > 1 context grains one of these for each
  /// grain of this rank, of S/C tokens.
  at::Tensor run_chunk(int chunk, const at::Tensor& in, const at::Tensor& targets_BS,
                       const RankContext& context) override;
  int chunk_of(const std::string& path) const override;
  plan::TensorSlice slice_of(const std::string& path) const override;

  /// Matrices and embeddings: normal, init_std; c_proj: init_std / sqrt(2 layers), since 2 layers
  /// branches add up on the residual stream; gains 1; biases 0.
  plan::Init init_of(const std::string& path) const override;
  std::vector<plan::Tie> ties() const override;

  /// 6 N + 12 layers width context, with N all parameters but the positions', which take part in no
  /// product; a tied head counts once.
  double flops_per_token() const override;

 private:
  /// The parameters that a context grain computes with.
  struct Weights {
    std::shared_ptr<GrainMatrix> wte;
    std::shared_ptr<Matrix> wpe;
    std::map<int64_t, std::shared_ptr<DecoderBlock>> blocks;  // by layer
    std::shared_ptr<Norm> ln_f;
    std::shared_ptr<GrainMatrix> lm_head;
  };
  /// In `root`, of which they are children.
  Weights make_weights(torch::nn::Module& root) const;

  const DecoderConstants& constants(int64_t sequence);
  parallel::TensorGroup group_of(const RankContext& context) const;
  at::Tensor embed(const at::Tensor& ids_BS, const RankContext& context);
  at::Tensor embed_rows(const Weights& weights, const at::Tensor& ids, const at::Tensor& positions,
                        const RankContext& context) const;
  at::Tensor run_blocks(at::Tensor x, const plan::ModelChunk& chunk, const RankContext& context);
  std::vector<at::Tensor> head(const Weights& weights, const at::Tensor& x,
                               const RankContext& context) const;
  at::Tensor losses(const Weights& weights, const at::Tensor& x, const at::Tensor& targets_BS,
                    const RankContext& context) const;

  // Over context grains.
  at::Tensor run_grains(const plan::ModelChunk& piece, const at::Tensor& in,
                        const at::Tensor& targets_BS, const RankContext& context);
  at::Tensor embed_grain(size_t index, const at::Tensor& ids_BS, const RankContext& context) const;
  std::vector<DecoderConstants> constants_of_grains(int64_t sequence);
  GrainTokens tokens_of(size_t index, int64_t sequence) const;

  DecoderSettings settings_;
  std::vector<Weights> weights_;                     // of each context grain of this rank
  std::map<std::string, plan::TensorSlice> slices_;  // by path
  std::unique_ptr<DecoderConstants> constants_;      // of the sequence length seen last
};

}  // namespace lockstep::models
