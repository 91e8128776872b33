/// The loss on validation data, and for some tasks the share of samples that were right: fixed
/// samples, whoever computes them.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>

#include "lockstep/train/task.h"

namespace lockstep {

struct EvaluationOptions {
  int64_t samples = 0;
  int64_t micro_batch = 0;  // samples in one forward call: each is a leaf
  /// Asked between micro-batches, by all ranks alike and together (it may be a collective): true
  /// ends the evaluation without a result.
  std::function<bool()> stop = {};
  /// Who shares the samples: this rank among those that hold the same part of the model, of which
  /// context ranks share each sample. -1: all ranks of the world.
  int rank = -1;
  int ranks = 0;
  bool has_losses = true;  // that count: one rank of each pipeline and tensor group has
  /// Of a pipeline: what this stage does for a micro-batch; gives its losses on the stage that has
  /// them. Not set: the task's validate.
  using RunChunk = std::function<at::Tensor(int chunk, const at::Tensor& input)>;
  std::function<at::Tensor(const RunChunk& run)> pass = {};
  /// Runs each forward, and an empty one on a rank that has none in a round; not set: called as is.
  std::function<void(const std::function<void()>& forward)> run_forward = {};
};

struct EvaluationResult {
  double loss = 0;                 // mean; of a language model in nats per token
  int64_t terms = 0;               // that it was taken over: tokens
  bool stopped = false;            // on request: there is no loss
  double accuracy = std::nan("");  // share of samples that were right; NaN: the task has none
};

/// At most one pass over the data: fewer samples than asked for if the task has fewer. Leaves are
/// summed in fp64 through the sum tree over `context.world`: the same bits on any number of ranks.
EvaluationResult evaluate(Task& task, const EvaluationOptions& options, const RankContext& context);

}  // namespace lockstep
