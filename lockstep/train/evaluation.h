/// The loss on validation data: fixed, evenly spaced windows, whoever computes them.
#pragma once

#include <cstdint>
#include <functional>

#include "lockstep/input/token_file.h"
#include "lockstep/models/language_model.h"

namespace lockstep {

struct EvaluationOptions {
  int64_t windows = 0;      // of `context` tokens
  int64_t micro_batch = 0;  // windows in one forward call: each is a leaf
  int64_t context = 0;
  /// Asked between micro-batches, by all ranks alike and together (it may be a collective): true
  /// ends the evaluation without a result.
  std::function<bool()> stop = {};
};

struct EvaluationResult {
  double loss = 0;       // mean, in nats per token
  int64_t tokens = 0;    // that it was taken over
  bool stopped = false;  // on request: there is no loss
};

/// At most one pass over the data: fewer windows than asked for if the file has fewer. Leaves are
/// summed in fp64 through the sum tree over `context.world`: the same bits on any number of ranks.
EvaluationResult evaluate(models::LanguageModel& model, const input::TokenFile& data,
                          const EvaluationOptions& options, const RankContext& context);

}  // namespace lockstep
