/// What is known of a step once it is over: the figures of the progress line, metrics.jsonl,
/// TensorBoard and /metrics.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "lockstep/memory/account.h"
#include "lockstep/torch_inside/layer_scope.h"

namespace lockstep {

/// Seconds of a step by its parts, in the order of torch_inside::Phase. Rank 0's.
using PhaseSeconds = std::array<double, torch_inside::kPhases>;

struct StepReport {
  int64_t step = 0;   // done, from 1
  int64_t epoch = 1;  // from 1: of the step's first sample
  double loss = 0;    // mean nats per token of the step
  double grad_norm = 0;
  double lr = 0;
  double seconds = 0;
  int64_t tokens = 0;  // of the step, all ranks
  double tokens_per_second = 0;
  double mfu = 0;                // model operations over what the measured peak allows, 0..1
  memory::KindBytes memory{};    // alive after the step, of rank 0
  int64_t comm_bytes = 0;        // of peers' memory, read and written by rank 0
  double comm_seconds = 0;       // inside collectives
  double comm_wait_seconds = 0;  // the part of it that backward did not hide
  PhaseSeconds phases{};
  double loss_scale = 1;          // of the next step
  int64_t skipped = 0;            // steps so far that were computed and not taken
  double noise_scale = kNone;     // samples; kNone: not measured, or not known yet
  std::string param_digest = {};  // of the parameters after the step; empty: not taken

  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  int64_t memory_bytes() const {
    int64_t sum = 0;
    for (const int64_t bytes : memory) sum += bytes;
    return sum;
  }
  double comm_share() const { return seconds > 0 ? comm_seconds / seconds : 0; }
  /// 0..1; 0 where no collective took time.
  double comm_hidden() const {
    if (comm_seconds <= 0) return 0;
    const double hidden = 1 - comm_wait_seconds / comm_seconds;
    return hidden < 0 ? 0 : hidden;
  }
};

}  // namespace lockstep
