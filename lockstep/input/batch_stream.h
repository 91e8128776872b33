/// The micro-batches of one rank, step after step, read ahead by a thread (`ls-input`).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/input/sampler.h"
#include "lockstep/input/token_file.h"
#include "lockstep/plan/batch_plan.h"

namespace lockstep::input {

struct MicroBatch {
  plan::Round round;                 // leaf and micro; phantom rounds hold no tokens
  plan::SampleRange samples;         // in the step
  int64_t context = 0;
  std::vector<int64_t> tokens;       // samples x (context + 1), row-major

  /// Inputs and targets are tokens [0, context) and [1, context] of each row.
};

class BatchStream {
 public:
  /// Reads at most `ahead` steps before they are asked for. An error of the reading thread comes
  /// out of next().
  BatchStream(std::shared_ptr<const TokenFile> file, Sampler sampler, plan::BatchPlan batch,
              std::vector<plan::Round> rounds, int64_t first_step, int64_t last_step,
              int ahead = 2);
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
