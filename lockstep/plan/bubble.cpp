#include "lockstep/plan/bubble.h"

#include <algorithm>

namespace lockstep::plan {
namespace {

double share(double idle, double total) { return total > 0 ? idle / total : 0; }

}  // namespace

double StageSpan::idle_share() const {
  const double span = last_end - first_start;
  return share(span - busy_seconds, span);
}

double bubble_fraction(const std::vector<StageSpan>& stages) {
  double first = 0;
  double last = 0;
  double busy = 0;
  int count = 0;
  for (const StageSpan& stage : stages) {
    if (stage.last_end <= stage.first_start) continue;
    first = count == 0 ? stage.first_start : std::min(first, stage.first_start);
    last = count == 0 ? stage.last_end : std::max(last, stage.last_end);
    busy += stage.busy_seconds;
    ++count;
  }
  const double total = count * (last - first);
  return share(total - busy, total);
}

std::optional<double> bubble_formula(const PipelineSchedule& schedule,
                                     const StageSeconds& seconds) {
  const auto& [F, B, W] = seconds;
  const double P = schedule.stages;
  const double M = schedule.micro_batches;
  if (M == 0) return std::nullopt;
  if (schedule.name == "gpipe" || schedule.name == "1f1b") return (P - 1) / (M + P - 1);
  if (schedule.name == "interleaved" && schedule.micro_batches % schedule.stages == 0) {
    return (P - 1) / (schedule.chunks * M + P - 1);
  }
  if (schedule.name == "zero-bubble" && M >= P && W <= F && W <= B) {
    const double idle = (P - 1) * (F + B - W);
    return idle / (M * (F + B + W) + idle);
  }
  if (schedule.name == "zero-bubble-v" && M >= 2 * P - 1 && F == B && B == W) {
    return (P - 1) / (6 * M + P - 1);
  }
  return std::nullopt;
}

}  // namespace lockstep::plan
