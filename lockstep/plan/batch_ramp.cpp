#include "lockstep/plan/batch_ramp.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/plan/run_layout.h"

namespace lockstep::plan {
namespace {

BatchPlan with_micro_batches(BatchPlan batch, int micro_batches_per_grain) {
  batch.micro_batches_per_grain = micro_batches_per_grain;
  batch.global_batch = batch.micro_batch * batch.grains * micro_batches_per_grain;
  return batch;
}

void check_ramp(const TrainConfig& config, const BatchPlan& whole) {
  const auto& data = config.data;
  if (data.ramp_from > 0 && data.ramp_steps == 0) {
    throw UsageError(base::str("data.ramp_from = ", data.ramp_from,
                               " grows over data.ramp_steps, which is 0.\n  These fit: --set "
                               "data.ramp_steps=",
                               std::max<int64_t>(1, config.run.steps / 4),
                               ", or --set data.ramp_from=0"));
  }
  if (data.ramp_from == 0 && data.ramp_steps > 0) {
    const int64_t part = whole.micro_batch * whole.grains;
    throw UsageError(base::str(
        "data.ramp_steps = ", data.ramp_steps, " has no effect without data.ramp_from.\n  ",
        part < whole.global_batch ? base::str("These fit: --set data.ramp_from=", part, ", or ")
                                  : std::string("This fits: "),
        "--set data.ramp_steps=0"));
  }
  if (data.ramp_from == 0) return;
  const int64_t part = whole.micro_batch * whole.grains;
  if (data.ramp_from % part == 0 && data.ramp_from < data.global_batch) return;
  const int64_t most = std::max(part, data.global_batch - part);
  const int64_t below = std::clamp(data.ramp_from / part * part, part, most);
  const int64_t above = std::clamp(below + part, part, most);
  throw UsageError(base::str(
      "data.ramp_from = ", data.ramp_from, " must be a multiple of data.micro_batch times ",
      whole.grains, " leaves, ", whole.micro_batch, " x ", whole.grains, " = ", part,
      ", below data.global_batch = ", data.global_batch, ".\n  ",
      data.global_batch == part
          ? base::str("This fits: --set data.global_batch=", 2 * part,
                      " --set data.ramp_from=", part, " --set numerics.grains=", whole.grains)
          : base::str("The nearest: --set data.ramp_from=", below,
                      above == below ? "" : base::str(" or --set data.ramp_from=", above))));
}

}  // namespace

const BatchRamp::Stage& BatchRamp::at(int64_t step) const {
  const auto later = std::find_if(stages.begin() + 1, stages.end(),
                                  [&](const Stage& stage) { return stage.first_step > step; });
  return *(later - 1);
}

int64_t BatchRamp::samples_before(int64_t step) const {
  const Stage& stage = at(step);
  return stage.first_sample + (step - stage.first_step) * stage.batch.global_batch;
}

int64_t BatchRamp::end_of(const Stage& stage, int64_t steps) const {
  const auto next = std::find_if(stages.begin(), stages.end(), [&](const Stage& other) {
    return other.first_step > stage.first_step;
  });
  return next == stages.end() ? steps : std::min(steps, next->first_step);
}

BatchRamp ramp_of(const TrainConfig& config) {
  const BatchPlan whole = batch_of(config);
  check_ramp(config, whole);
  if (config.data.ramp_from == 0) return {.stages = {{.batch = whole}}};
  const int64_t steps = config.data.ramp_steps;
  const int64_t first = config.data.ramp_from / (whole.micro_batch * whole.grains);
  const int64_t parts = whole.micro_batches_per_grain - first;
  BatchRamp ramp;
  for (int64_t part = 0; part <= parts; ++part) {
    // The first step with at least so many parts: step * parts >= part * steps.
    const int64_t first_step = (part * steps + parts - 1) / parts;
    const BatchPlan batch = with_micro_batches(whole, static_cast<int>(first + part));
    // Fewer steps than parts: some sizes have no step.
    if (!ramp.stages.empty() && ramp.stages.back().first_step == first_step) {
      ramp.stages.back().batch = batch;
      continue;
    }
    const int64_t samples = ramp.stages.empty() ? 0 : ramp.samples_before(first_step);
    ramp.stages.push_back({.first_step = first_step, .first_sample = samples, .batch = batch});
  }
  return ramp;
}

}  // namespace lockstep::plan
