#include "lockstep/models/language_model.h"

#include <ATen/ops/cross_entropy_loss.h>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/models/decoder.h"
#include "lockstep/models/mlp.h"
#include "lockstep/torch_inside/layer_scope.h"

namespace lockstep::models {

namespace {

at::Tensor losses_of(const at::Tensor& logits_BSV, const at::Tensor& targets_BS) {
  const torch_inside::LayerScope layer("loss");
  return at::cross_entropy_loss(logits_BSV.flatten(0, 1), targets_BS.reshape({-1}), /*weight=*/{},
                                at::Reduction::None);
}

}  // namespace

at::Tensor LanguageModel::token_losses(const at::Tensor& ids_BS, const at::Tensor& targets_BS,
                                       const RankContext& context) {
  return losses_of(logits(ids_BS, context), targets_BS);
}

at::Tensor LanguageModel::run_chunk(int chunk, const at::Tensor& in, const at::Tensor& targets_BS,
                                    const RankContext& context) {
  LOCKSTEP_ASSERT(chunk == 0, "a model that is not cut is one piece");
  return token_losses(in, targets_BS, context);
}

int LanguageModel::chunk_of(const std::string&) const { return 0; }

plan::TensorSlice LanguageModel::slice_of(const std::string&) const { return {}; }

std::shared_ptr<LanguageModel> make_model(const plan::TrainConfig& config, int64_t vocab,
                                          const ModelPart& part) {
  const auto& model = config.model;
  const plan::Recompute recompute = plan::recompute_of(config.memory.recompute);
  const bool llama = model.family == "llama";
  const int64_t ffn_by_itself = llama ? llama_ffn(model.width) : 4 * model.width;
  const int64_t ffn = model.ffn == 0 ? ffn_by_itself : model.ffn;
  if (model.family == "gpt2" || llama) {
    return std::make_shared<Decoder>(
        DecoderSettings{.style = llama ? DecoderStyle::llama : DecoderStyle::gpt2,
                        .vocab = vocab,
                        .layers = model.layers,
                        .heads = model.heads,
                        .kv_heads = model.kv_heads,
                        .width = model.width,
                        .ffn = ffn,
                        .context = model.context,
                        .dropout = model.dropout,
                        .tied = model.tied,
                        .bias = model.bias,
                        .norm_eps = model.norm_eps,
                        .rope_theta = model.rope_theta,
                        .init_std = model.init_std,
                        .recompute = recompute,
                        .chunks = part.chunks,
                        .tensor = part.tensor,
                        .sequence = part.sequence,
                        .arithmetic = fused::arithmetic_of(config)});
  }
  if (model.family == "mlp") {
    if (model.tied) {
      throw UsageError(
          "model.tied is true, but the family mlp has a head of its own: set model.tied = false");
    }
    if (recompute == plan::Recompute::selective) {
      throw UsageError(
          "memory.recompute is selective, but the family mlp has no attention: set block or none");
    }
    return std::make_shared<Mlp>(MlpSettings{.vocab = vocab,
                                             .layers = model.layers,
                                             .width = model.width,
                                             .ffn = ffn,
                                             .dropout = model.dropout,
                                             .bias = model.bias,
                                             .init_std = model.init_std,
                                             .recompute = recompute == plan::Recompute::block});
  }
  throw UsageError(
      base::str("model.family = \"", model.family, "\": the families are gpt2, llama and mlp"));
}

}  // namespace lockstep::models
