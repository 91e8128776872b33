/// A global batch that grows over the first steps of a run: small steps while the gradient is far
/// above its noise, large ones when it no longer is.
///
/// The leaves of a step stay as many; their micro-batches grow in number, from data.ramp_from to
/// data.global_batch in equal parts over data.ramp_steps. Samples are numbered through: none is
/// left out or seen twice. So what a step computes stays a function of the settings alone.
///
///   ramp 8 -> 16, micro-batch 2, 2 leaves (parts of 4), ramp_steps 10:
///   steps 0-4: 8 samples each, 0-39   steps 5-9: 12 each, 40-99   from step 10: 16 each, 100-...
///
/// Source  Smith et al. 2018, "Don't decay the learning rate, increase the batch size",
///         arXiv:1711.00489; Brown et al. 2020, arXiv:2005.14165, appendix B;
///         docs/concepts/optimizers.md
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/plan/batch_plan.h"
#include "lockstep/plan/train_config.h"

namespace lockstep::plan {

struct BatchRamp {
  /// Steps of one size.
  struct Stage {
    int64_t first_step = 0;
    int64_t first_sample = 0;  // of the run
    BatchPlan batch;
    bool operator==(const Stage&) const = default;
  };
  std::vector<Stage> stages;  // in order, the first from step 0 on; one without a ramp

  /// The stage that `step` belongs to.
  const Stage& at(int64_t step) const;
  bool begins(int64_t step) const { return at(step).first_step == step; }
  /// Samples of the steps before `step`.
  int64_t samples_before(int64_t step) const;
  /// Past the last step of `stage`, in a run of `steps`.
  int64_t end_of(const Stage& stage, int64_t steps) const;
};

/// Of a run. Throws UsageError: sizes that do not cut into its leaves, with the nearest that do.
BatchRamp ramp_of(const TrainConfig& config);

}  // namespace lockstep::plan
