/// The bubble of a pipeline: the share of time in which its stages compute nothing.
///
///   bubble = idle / total    total = P (last end - first start)    idle = total - computing
///
/// of all stages together, so the wait of the last stage for its first input counts, and that of
/// the first one for the others' end. Simulated and measured by the one function below.
/// Source  Huang et al. 2019 (GPipe); Narayanan et al. 2021, arXiv:2104.04473; Qi et al. 2023,
///         arXiv:2401.10241;  docs/concepts/bubble.md
#pragma once

#include <optional>
#include <vector>

#include "lockstep/plan/pipeline_schedule.h"

namespace lockstep::plan {

/// The computing (forward, backward, weight) of one stage in one step.
struct StageSpan {
  double first_start = 0;  // seconds, on a clock of all stages
  double last_end = 0;
  double busy_seconds = 0;

  /// The idle share between the stage's own first start and last end.
  double idle_share() const;
};

/// Stages without any computing do not count. 0 where nothing takes time.
double bubble_fraction(const std::vector<StageSpan>& stages);

/// What forward, the gradients of the inputs and those of the weights take on a whole stage.
struct StageSeconds {
  double forward = 1;
  double backward = 1;
  double weight = 1;
};

/// The bubble where all stages take the same time and messages none, F, B, W as above:
///
///   gpipe, 1f1b     (P-1) / (M + P-1)
///   interleaved     (P-1) / (v M + P-1)                        M a multiple of P
///   zero-bubble     x / (M (F + B + W) + x), x = (P-1) (F + B - W)      M >= P, W <= F, W <= B
///   zero-bubble-v   (P-1) / (6 M + P-1)                        M >= 2 P - 1, F = B = W
///
/// Nothing for other numbers, and for schedules of other names.
std::optional<double> bubble_formula(const PipelineSchedule& schedule, const StageSeconds& seconds);

}  // namespace lockstep::plan
