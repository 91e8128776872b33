#include "lockstep/plan/part_traffic.h"

#include "lockstep/plan/context_bytes.h"
#include "lockstep/plan/kernel_blocks.h"
#include "lockstep/plan/synthetic_compute.h"
#include "lockstep/plan/tensor_bytes.h"

namespace lockstep::plan {
namespace {

/// Ranks that sleep share neither layers nor sequences.
bool computes(const TrainConfig& config) { return config.run.synthetic_compute.empty(); }

/// models/decoder.cpp, losses().
int64_t loss_rows(const TrainConfig& config) {
  const bool one = config.numerics.kernels == "fused" && config.precision.compute != "fp16";
  return one ? kLossRows : 0;
}

}  // namespace

std::vector<int64_t> tensor_traffic(const TrainConfig& config,
                                    const std::vector<ModelChunk>& chunks,
                                    const GrainPlaces& places) {
  std::vector<int64_t> bytes;
  if (places.tensor.by_rank.size() == 1 || !computes(config)) return bytes;
  const bool gpt2 = config.model.family == "gpt2";
  for (const ModelChunk& chunk : chunks) {
    // Each context grain goes through the layers by itself.
    const TensorBytes of = tensor_bytes({.batch = config.data.micro_batch,
                                         .sequence = config.model.context / places.sequence.grains,
                                         .width = config.model.width,
                                         .layers = chunk.last_layer - chunk.first_layer,
                                         .embeds = chunk.embeds,
                                         .heads = chunk.heads,
                                         .positions = gpt2,
                                         .norm_bias = gpt2 && config.model.bias,
                                         .recompute_blocks = config.memory.recompute == "block",
                                         .loss_rows = loss_rows(config)},
                                        places.tensor);
    bytes.push_back((of.forward + of.backward) * places.sequence.local.size());
  }
  return bytes;
}

std::vector<int64_t> context_traffic(const TrainConfig& config,
                                     const std::vector<ModelChunk>& chunks,
                                     const GrainPlaces& places) {
  std::vector<int64_t> bytes;
  if (places.sequence.by_rank.size() == 1 || !computes(config)) return bytes;
  const auto& model = config.model;
  const int64_t key_heads = model.kv_heads > 0 ? model.kv_heads : model.heads;
  const int64_t own_heads = key_heads / places.tensor.grains * places.tensor.local.size();
  const ContextBytes of_layer = context_bytes({.sequence = model.context,
                                               .heads = config.data.micro_batch * own_heads,
                                               .width = model.width / model.heads},
                                              places.sequence);
  const int64_t forwards = config.memory.recompute == "block" ? 2 : 1;
  for (const ModelChunk& chunk : chunks) {
    bytes.push_back((forwards * of_layer.forward + of_layer.backward) *
                    (chunk.last_layer - chunk.first_layer));
  }
  return bytes;
}

int64_t message_traffic(const TrainConfig& config, const GrainPlaces& places) {
  if (!computes(config)) return config.data.micro_batch * SyntheticCompute::kWidth * 4;
  const auto& [tensor, sequence] = places;
  const int64_t tokens =
      config.data.micro_batch * config.model.context * sequence.local.size() / sequence.grains;
  const int64_t whole = tokens * config.model.width * 4;
  return tensor.sequence ? whole * tensor.local.size() / tensor.grains : whole;
}

}  // namespace lockstep::plan
