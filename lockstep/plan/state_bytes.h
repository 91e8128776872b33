/// The memory that a layout asks of a rank for parameters, gradients and optimizer state, in bytes:
/// what the stores allocate, by the same values that they follow.
///
/// fp32 and AdamW, P trained elements, N ranks that divide a replica, one leaf a rank:
///
///   none 16 P   zero1 8 P + 8 P/N   zero2 4 P + 12 P/N   zero3 16 P/N
///
/// SGD and LARS keep one moment, of 4 bytes, where AdamW and LAMB keep two.
///
/// plus, stated apart: further levels of the fold stack, further uses of tied parameters, the
/// buffers of the leaf at work, gathered units, padding.
///
/// Source  Rajbhandari et al. 2020, "ZeRO", SC20, section 5; docs/concepts/zero.md
#pragma once

#include <cstdint>

#include "lockstep/plan/step_program.h"

namespace lockstep::plan {

struct StateBytes {
  int64_t parameters = 0;  // masters; whole, or this rank's shards
  int64_t gradients = 0;   // sums: whole, or this rank's slices, with all levels of the stack
  int64_t leaf = 0;        // the most that buffers of the leaf at work take at once
  int64_t side = 0;        // further uses of tied parameters
  int64_t optimizer = 0;   // its moments
  int64_t gathered = 0;    // the most that gathered units take at once, the root included
  int64_t total() const { return parameters + gradients + leaf + side + optimizer + gathered; }
};

/// Of the rank with this place among the data-parallel ranks.
StateBytes planned_state(const StepInputs& inputs, int rank);

}  // namespace lockstep::plan
