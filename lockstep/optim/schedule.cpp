#include "lockstep/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"

namespace lockstep::optim {
namespace {

// sin(x) for x in [0, pi/4], to 1e-16. The C library's cosine rounds differently from one CPU to
// the next, and unlike machines are to take equal steps.
double sine(double x) {
  const double square = x * x;
  double sum = 0;
  for (int k = 8; k >= 1; --k) sum = (sum + 1) * (-square / (2 * k * (2 * k + 1)));
  return x + x * sum;
}

// (1 + cos(pi * p)) / 2, exact at both ends: 1 at p = 0, 0 at p = 1.
double half_cosine(double p) {
  const double s = sine(std::min(p, 1 - p) * (std::numbers::pi / 2));
  return p <= 0.5 ? 1 - s * s : s * s;
}

[[noreturn]] void unknown_name(const char* field, const std::string& name,
                               const std::vector<std::string>& names) {
  const std::string near = base::nearest(name, names);
  throw UsageError(base::str(field, " = \"", name, "\": there are ", base::joined(names),
                             near.empty() ? "" : "; did you mean " + near + "?"));
}

}  // namespace

void check(const Schedule& schedule) {
  const auto refuse = [](const char* field, double value, const char* rule) {
    throw UsageError(base::str("learning rate schedule: ", field, " is ", base::exact(value),
                               ", but must be ", rule));
  };
  if (!(schedule.peak > 0) || !std::isfinite(schedule.peak)) {
    refuse("the peak (optim.lr)", schedule.peak, "a positive number");
  }
  if (schedule.warmup_steps < 0) {
    refuse("optim.warmup_steps", static_cast<double>(schedule.warmup_steps), "0 or more");
  }
  if (schedule.steps < 1) {
    refuse("run.steps", static_cast<double>(schedule.steps), "1 or more");
  }
  if (!(schedule.min_ratio >= 0 && schedule.min_ratio <= 1)) {
    refuse("optim.min_lr_ratio", schedule.min_ratio, "between 0 and 1");
  }
}

double learning_rate(const Schedule& schedule, int64_t step) {
  check(schedule);
  if (step < 0) throw UsageError(base::str("learning rate of step ", step, ": steps count from 0"));
  if (step < schedule.warmup_steps) {
    return schedule.peak *
           (static_cast<double>(step + 1) / static_cast<double>(schedule.warmup_steps));
  }
  if (schedule.decay == Decay::constant) return schedule.peak;
  const int64_t first = std::max<int64_t>(schedule.warmup_steps - 1, 0);  // has the peak
  const int64_t length = schedule.steps - 1 - first;
  if (length <= 0) return schedule.peak;
  const double progress =
      std::min(1.0, static_cast<double>(step - first) / static_cast<double>(length));
  const double left = schedule.decay == Decay::cosine ? half_cosine(progress) : 1 - progress;
  return schedule.peak * (schedule.min_ratio + (1 - schedule.min_ratio) * left);
}

Decay decay_of(const std::string& name) {
  if (name == "cosine") return Decay::cosine;
  if (name == "linear") return Decay::linear;
  if (name == "constant") return Decay::constant;
  unknown_name("optim.decay", name, {"cosine", "linear", "constant"});
}

double scaled_rate(double lr, int64_t base_batch, int64_t global_batch, BatchScaling scaling) {
  if (scaling == BatchScaling::none) return lr;
  for (const auto& [field, value] :
       {std::pair{"optim.base_batch", base_batch}, std::pair{"data.global_batch", global_batch}}) {
    if (value > 0) continue;
    throw UsageError(
        base::str("learning rate scaling: ", field, " is ", value, ", but must be 1 or more"));
  }
  const double ratio = static_cast<double>(global_batch) / static_cast<double>(base_batch);
  return lr * (scaling == BatchScaling::linear ? ratio : std::sqrt(ratio));
}

BatchScaling batch_scaling_of(const std::string& name) {
  if (name == "none") return BatchScaling::none;
  if (name == "linear") return BatchScaling::linear;
  if (name == "sqrt") return BatchScaling::sqrt;
  unknown_name("optim.lr_scaling", name, {"none", "linear", "sqrt"});
}

}  // namespace lockstep::optim
