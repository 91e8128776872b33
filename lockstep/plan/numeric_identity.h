/// What decides the bits of a run. Two runs of one identity, seed and data end in equal bits on
/// every layout; another identity is another (equally good) run.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/plan/batch_plan.h"

namespace lockstep::plan {

struct NumericIdentity {
  BatchPlan batch;
  int tensor_grains = 1;  // the context's are the batch's
  std::string compute = "fp32";
  std::string kernel_set;       // e.g. "aten-1.13"
  std::string instruction_set;  // e.g. "avx2": what the kernels were told to use
  int threads_per_rank = 1;

  /// One line that is printed, stored in checkpoints and compared on resume:
  /// "B16 b4 G4 M1 T1 fp32 aten-1.13 avx2 1t"; with several context grains C4 behind T.
  std::string text() const;
  bool operator==(const NumericIdentity&) const = default;
};

}  // namespace lockstep::plan
