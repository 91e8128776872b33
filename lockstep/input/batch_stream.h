/// The micro-batches of one rank, step after step, read ahead by a thread (`ls-input`).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/input/training_data.h"
#include "lockstep/plan/batch_plan.h"

namespace lockstep::input {

struct MicroBatch {
  plan::Round round;          // leaf and micro; phantom rounds hold no tokens
  plan::SampleRange samples;  // in the step
  int64_t context = 0;
  /// samples x (context + 1), row-major. Of each row, tokens [0, context) are the inputs and
  /// [1, context] the targets.
  std::vector<int64_t> tokens;
};

class BatchStream {
 public:
  /// Reads the steps first_step <= step < last_step, at most `ahead` of them before they are asked
  /// for. Sample `first_sample` of the run is the first step's first; -1: the steps before had as
  /// many samples each. An error of the reading thread comes out of next(), after the steps read
  /// before it.
  BatchStream(std::shared_ptr<const TrainingData> data, plan::BatchPlan batch,
              std::vector<plan::Round> rounds, int64_t first_step, int64_t last_step, int ahead = 2,
              int64_t first_sample = -1);
  /// The same over one source. Throws what TrainingData does.
  BatchStream(std::shared_ptr<const TokenSource> tokens, Sampler sampler, plan::BatchPlan batch,
              std::vector<plan::Round> rounds, int64_t first_step, int64_t last_step,
              int ahead = 2);
  /// Stops the reader within one sample's read, and joins it.
  ~BatchStream();

  /// The rank's rounds of the next step, in order. Throws UsageError past the last step.
  std::vector<MicroBatch> next();

  /// Seconds that next() waited for the reader.
  double waited_seconds() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::input
