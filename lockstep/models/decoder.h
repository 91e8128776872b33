/// A decoder of tokens in the manner of GPT-2: learned positions, norms before each sub-layer,
/// causal attention, and a feed-forward layer with the tanh form of GELU.
///
/// Source  Radford et al. 2019, "Language models are unsupervised multitask learners"
///
/// Parameters, in the order of use; linear weights are (out, in), rows of c_attn q then k then v:
///
///   wte.weight (V, D)  wpe.weight (context, D)
///   h.N.ln_1.{weight, bias}           h.N.attn.c_attn.{weight (3D, D), bias}
///                                     h.N.attn.c_proj.{weight (D, D), bias}
///   h.N.ln_2.{weight, bias}           h.N.mlp.c_fc.{weight (F, D), bias}
///                                     h.N.mlp.c_proj.{weight (D, F), bias}
///   ln_f.{weight, bias}  lm_head.weight (V, D)
///
/// A tied head is a leaf of its own that takes the storage of wte.weight (`ties`), so each use has
/// its own gradient. Without `bias` neither linear maps nor norms have one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/models/language_model.h"
#include "lockstep/models/layers.h"
#include "lockstep/plan/activation_bytes.h"

namespace lockstep::models {

struct DecoderSettings {
  int64_t vocab = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t width = 0;
  int64_t ffn = 0;
  int64_t context = 0;
  double dropout = 0;  // of the embedding, the attention probabilities and both branches
  bool tied = true;
  bool bias = true;
  double norm_eps = 1e-5;
  double init_std = 0.02;
  /// Less memory for more time, and the same bits: plan::decoder_activation_bytes says how much.
  plan::Recompute recompute = plan::Recompute::none;
  /// The pieces that a stage of a pipeline holds; empty: the whole model. Only their parameters are
  /// there, under the names above.
  std::vector<plan::ModelChunk> chunks = {};
};

class Decoder final : public LanguageModel {
 public:
  /// Throws UsageError naming field and value: a size below 1, heads that do not divide the width,
  /// a dropout outside [0, 1), norm_eps or init_std that is not positive.
  explicit Decoder(const DecoderSettings& settings);
  ~Decoder() override;

  /// Throws UsageError for more tokens than the context.
  at::Tensor logits(const at::Tensor& ids_BS, const RankContext& context) override;

  at::Tensor run_chunk(int chunk, const at::Tensor& in, const at::Tensor& targets_BS,
                       const RankContext& context) override;
  int chunk_of(const std::string& path) const override;

  /// Matrices and embeddings: normal, init_std; c_proj: init_std / sqrt(2 layers), since 2 layers
  /// branches add up on the residual stream; gains 1; biases 0.
  plan::Init init_of(const std::string& path) const override;
  std::vector<plan::Tie> ties() const override;

  /// 6 N + 12 layers width context, with N all parameters but the positions', which take part in no
  /// product; a tied head counts once.
  double flops_per_token() const override;

 private:
  struct Block;

  const at::Tensor& causal_mask(int64_t size);
  at::Tensor embed(const at::Tensor& ids_BS, const RankContext& context);
  at::Tensor run_blocks(at::Tensor x_BSD, const plan::ModelChunk& chunk,
                        const RankContext& context);

  DecoderSettings settings_;
  std::shared_ptr<Matrix> wte_;
  std::shared_ptr<Matrix> wpe_;
  std::map<int64_t, std::shared_ptr<Block>> blocks_;  // by layer
  std::shared_ptr<Norm> ln_f_;
  std::shared_ptr<Matrix> lm_head_;
  at::Tensor mask_;  // of the sequence length seen last
};

}  // namespace lockstep::models
