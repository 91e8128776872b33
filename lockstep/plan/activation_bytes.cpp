#include "lockstep/plan/activation_bytes.h"

#include "lockstep/plan/detail/activation_walk.h"
#include "lockstep/plan/train_config.h"

namespace lockstep::plan {

Recompute recompute_of(const std::string& setting) {
  if (setting == "selective") return Recompute::selective;
  return setting == "block" ? Recompute::block : Recompute::none;
}

DecoderShape decoder_shape_of(const TrainConfig& config) {
  const auto& model = config.model;
  return {.batch = config.data.micro_batch,
          .sequence = model.context,
          .width = model.width,
          .heads = model.heads,
          .ffn = feed_forward_width(config),
          .layers = model.layers,
          .vocab = resolved_vocab(config),
          .dropout = model.dropout > 0,
          .bias = model.bias,
          .fused = config.numerics.kernels == "fused",
          .compute = parse_compute_type(config.precision.compute)};
}

ActivationBytes decoder_activation_bytes(const DecoderShape& shape, Recompute recompute) {
  return shape.fused ? detail::fused_activation_bytes(shape, recompute)
                     : detail::aten_activation_bytes(shape, recompute);
}

}  // namespace lockstep::plan
