/// What the trainer asks of a model of token sequences.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/rank_context.h"
#include "lockstep/plan/context_place.h"
#include "lockstep/plan/model_cut.h"
#include "lockstep/plan/param_table.h"
#include "lockstep/plan/tensor_place.h"
#include "lockstep/plan/train_config.h"

namespace lockstep::models {

// Shapes: B samples of the micro-batch, S context, V vocabulary.
class LanguageModel : public torch::nn::Module {
 public:
  /// [B, S] int64 -> [B, S, V].
  virtual at::Tensor logits(const at::Tensor& ids_BS, const RankContext& context) = 0;

  /// The loss of each token in nats, [B * S], of several context grains those of this rank one
  /// after the other; its sum over a step divided by the step's tokens is the training loss.
  virtual at::Tensor token_losses(const at::Tensor& ids_BS, const at::Tensor& targets_BS,
                                  const RankContext& context);

  /// A piece of a pipeline: `in` is what the piece before gave, for the first one token ids [B, S];
  /// the last gives the losses of `targets_BS`. A model that is not cut is its only piece.
  virtual at::Tensor run_chunk(int chunk, const at::Tensor& in, const at::Tensor& targets_BS,
                               const RankContext& context);
  /// The piece, on this stage, that the parameter at `path` belongs to.
  virtual int chunk_of(const std::string& path) const;

  /// Which part of a logical parameter the tensor at `path` is, where layers are divided.
  virtual plan::TensorSlice slice_of(const std::string& path) const;

  /// How the start values of the parameter at `path` are drawn.
  virtual plan::Init init_of(const std::string& path) const = 0;

  /// Parameters that are further uses of another one (a tied head).
  virtual std::vector<plan::Tie> ties() const { return {}; }

  /// Multiplications and additions of forward and backward for one token, in floating-point
  /// operations, by the usual count (6 N + 12 L H S): the base of the model FLOP utilisation.
  virtual double flops_per_token() const = 0;
};

/// What of a model a rank holds.
struct ModelPart {
  std::vector<plan::ModelChunk> chunks;  // empty: all of it
  plan::TensorPlace tensor = {};
  plan::ContextPlace sequence = {};
};

/// The model of `config.model`, its parameters not yet filled (ParamStore draws them).
/// `vocab` is the resolved vocabulary.
std::shared_ptr<LanguageModel> make_model(const plan::TrainConfig& config, int64_t vocab,
                                          const ModelPart& part = {});

}  // namespace lockstep::models
