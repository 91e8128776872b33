/// What one micro-batch moves between the ranks that share a model, from a run's settings: the
/// closed forms of tensor_bytes.h and context_bytes.h for each piece of the model that a rank has.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/plan/context_place.h"
#include "lockstep/plan/model_cut.h"
#include "lockstep/plan/tensor_place.h"
#include "lockstep/plan/train_config.h"

namespace lockstep::plan {

/// Which grains of its layers and of its sequences a rank has.
struct GrainPlaces {
  TensorPlace tensor = {};
  ContextPlace sequence = {};
};

/// By chunk, of its forward and backward: among the ranks that share its layers, and among those
/// that share its sequences. Empty where no ranks do.
std::vector<int64_t> tensor_traffic(const TrainConfig& config,
                                    const std::vector<ModelChunk>& chunks,
                                    const GrainPlaces& places);
std::vector<int64_t> context_traffic(const TrainConfig& config,
                                     const std::vector<ModelChunk>& chunks,
                                     const GrainPlaces& places);

/// Of the micro-batch's activation between two stages.
int64_t message_traffic(const TrainConfig& config, const GrainPlaces& places);

}  // namespace lockstep::plan
