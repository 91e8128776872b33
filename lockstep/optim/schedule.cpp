#include "lockstep/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

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
  const std::string near = base::nearest(name, {"cosine", "linear", "constant"});
  throw UsageError(base::str("optim.decay = \"", name, "\": there are cosine, linear and constant",
                             near.empty() ? "" : "; did you mean " + near + "?"));
}

}  // namespace lockstep::optim
