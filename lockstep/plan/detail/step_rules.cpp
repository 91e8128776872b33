#include "lockstep/plan/detail/step_rules.h"

#include <charconv>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/plan/batch_ramp.h"
#include "lockstep/plan/offload.h"
#include "lockstep/plan/run_layout.h"

namespace lockstep::plan {
namespace {

/// A key that is set, and has no effect with another as it is, is refused.
void require_unset(const TrainConfig& config, const char* key, const std::string& reason,
                   const std::string& others) {
  static const TrainConfig usual;
  if (get_key(config, key) == get_key(usual, key)) return;
  throw UsageError(base::str(key, " = ", get_key(config, key), " has no effect with ", reason,
                             ".\n  These fit: --set ", key, "=", get_key(usual, key), others));
}

double power_of_two_near(double number) {
  const double below = std::exp2(std::floor(std::log2(number)));
  return number - below <= 2 * below - number ? below : 2 * below;
}

/// Of `text` as a number; 0: it is none from 1 on.
double power_of_two_near(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || !(number >= 1)) return 0;
  return power_of_two_near(std::min(number, 0x1p24));
}

void check_precision(const TrainConfig& config) {
  const auto& precision = config.precision;
  const std::vector<const char*> of_dynamic = {"precision.first_scale", "precision.min_scale",
                                               "precision.growth_steps", "precision.hysteresis"};
  if (precision.compute != "fp16") {
    const std::string reason =
        base::str("precision.compute = \"", precision.compute, "\", whose gradients do not vanish");
    require_unset(config, "precision.loss_scale", reason, ", or --set precision.compute=fp16");
    for (const char* key : of_dynamic) {
      require_unset(config, key, reason, ", or --set precision.compute=fp16");
    }
    return;
  }
  if (precision.loss_scale != "dynamic") {
    const double near = power_of_two_near(precision.loss_scale);
    if (near == 0 || base::str(static_cast<int64_t>(near)) != precision.loss_scale) {
      throw UsageError(base::str(
          "precision.loss_scale = \"", precision.loss_scale,
          "\" is neither dynamic nor a power of two, which multiplies without rounding.\n  These "
          "fit: --set precision.loss_scale=dynamic, or --set precision.loss_scale=",
          near == 0 ? 1024 : static_cast<int64_t>(near)));
    }
    for (const char* key : of_dynamic) {
      require_unset(config, key,
                    base::str("precision.loss_scale = ", precision.loss_scale, ", which stays"),
                    ", or --set precision.loss_scale=dynamic");
    }
    return;
  }
  const std::pair<const char*, double> scales[] = {{"precision.first_scale", precision.first_scale},
                                                   {"precision.min_scale", precision.min_scale}};
  for (const auto& [key, scale] : scales) {
    const double near = power_of_two_near(scale);
    if (scale == near) continue;
    throw UsageError(base::str(key, " = ", scale, " is no power of two.\n  The nearest: --set ",
                               key, "=", static_cast<int64_t>(near)));
  }
  if (precision.min_scale > precision.first_scale) {
    throw UsageError(base::str("precision.min_scale = ", precision.min_scale,
                               " is above precision.first_scale = ", precision.first_scale,
                               ".\n  This fits: --set precision.min_scale=1"));
  }
}

/// A copy in memory is made of what is in memory.
void check_policies(const TrainConfig& config) {
  const auto& run = config.run;
  if (run.on_spike == "none") {
    require_unset(config, "run.spike_factor", "run.on_spike = \"none\"",
                  ", or --set run.on_spike=skip");
  }
  const bool rewinds = run.on_nan == "rewind" || run.on_spike == "rewind";
  if (!rewinds) {
    require_unset(config, "run.rewind_every", "nothing that rewinds",
                  ", or --set run.on_nan=rewind");
  }
  const Offload offload = offload_of(config);
  if (rewinds && (offload.optimizer || offload.parameters)) {
    throw UsageError(
        "a run that rewinds goes back to a copy in memory, and memory.offload keeps the state "
        "outside.\n  These fit: --set run.on_nan=skip --set run.on_spike=none, --set "
        "memory.offload=none, or --set memory.offload_kinds=activations");
  }
  if (config.optim.ema > 0 && offload.parameters) {
    throw UsageError(base::str(
        "optim.ema = ", config.optim.ema,
        " averages parameters in memory, and memory.offload keeps them outside.\n  These fit: "
        "--set optim.ema=0, --set memory.offload=none, or --set memory.offload_kinds=optimizer"));
  }
}

void check_ramp_layout(const TrainConfig& config) {
  const BatchRamp ramp = ramp_of(config);
  if (ramp.stages.size() == 1) return;
  if (!config.schedule_csv.empty()) {
    throw UsageError(base::str(
        "data.ramp_from = ", config.data.ramp_from, ": the schedule ", config.parallel.schedule,
        " is for one number of micro-batches, which a ramp changes.\n  "
        "These fit: --set data.ramp_from=0 --set data.ramp_steps=0, or --set "
        "parallel.schedule=1f1b"));
  }
}

void check_noise_scale(const TrainConfig& config) {
  if (!config.log.noise_scale) return;
  const BatchPlan batch = batch_of(config);
  if (batch.context_grains > 1) {
    throw UsageError(base::str(
        "log.noise_scale compares leaves with the whole step, but with ", batch.context_grains,
        " context grains no rank has the gradient of a whole leaf.\n  These fit: --set "
        "log.noise_scale=false, or --set parallel.context=1 --set numerics.context_grains=auto"));
  }
  if (batch.grains > 1) return;
  throw UsageError(base::str(
      "log.noise_scale compares the leaves of a step with the whole, but there is one leaf.\n  ",
      batch.micro_batches_per_grain > 1
          ? base::str("This fits: --set numerics.grains=", batch.micro_batches_per_grain)
          : base::str("This fits: --set data.global_batch=", 2 * batch.global_batch,
                      " --set numerics.grains=2"),
      ", or --set log.noise_scale=false"));
}

}  // namespace

void check_steps(const TrainConfig& config) {
  check_precision(config);
  check_policies(config);
  check_ramp_layout(config);
  check_noise_scale(config);
}

}  // namespace lockstep::plan
