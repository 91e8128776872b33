/// Start values that are read in the place of drawn ones: the weights of another run, a checkpoint
/// or a model of another program (run.from).
///
/// Each rank reads the runs of elements that it holds, on any layout: whole, sharded, its tensor
/// grains, its stage. What is padding stays zero.
///
/// Moves   of the file what the rank holds; one publish with zero1 and zero2
/// Holds   64 Ki elements                        test:
/// StartWeights.EveryLayoutHasTheFilesParameters
#pragma once

#include <string>
#include <vector>

#include "lockstep/checkpoint/weights.h"
#include "lockstep/plan/train_config.h"
#include "lockstep/state/param_store.h"
#include "lockstep/train/model_state.h"
#include "lockstep/train/replicas.h"

namespace lockstep {

/// What this rank owns of `params`, and the running values. Throws StateError naming the file: a
/// tensor that is missing, or of another shape.
void fill_from(const checkpoints::Weights& weights, state::ParamStore& params,
               const std::vector<NamedTensor>& running_values);

/// A run begins with the weights at config.run.from, if it says so. All ranks of the world call it,
/// before the first step. Throws StateError naming the file: it cannot be read, it is another
/// model's, or its parameters do not have the digest that it states.
void start_from_weights(const plan::TrainConfig& config, int64_t vocab, ModelState& state);

}  // namespace lockstep
