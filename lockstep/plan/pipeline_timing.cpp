#include "lockstep/plan/pipeline_timing.h"

#include <algorithm>
#include <map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::plan {
namespace {

void check_costs(const PipelineSchedule& schedule, const PipelineCosts& costs) {
  for (const ChunkSeconds* seconds : {&costs.forward, &costs.backward, &costs.weight}) {
    bool fits = seconds->by_stage.empty() || std::ssize(seconds->by_stage) == schedule.stages;
    for (const auto& stage : seconds->by_stage) fits &= std::ssize(stage) == schedule.chunks;
    if (fits) continue;
    throw UsageError(base::str("the pipeline schedule \"", schedule.name,
                               "\": costs by stage and chunk must be of all ", schedule.stages,
                               " stages and all ", schedule.chunks, " chunks of each."));
  }
}

void extend(StageSpan& span, const PipelineEvent& event, bool first) {
  if (first) span.first_start = event.start;
  span.last_end = event.end;
  span.busy_seconds += event.end - event.start;
}

class Clock {
 public:
  Clock(const PipelineSchedule& schedule, const PipelineCosts& costs)
      : schedule_(schedule), costs_(costs), now_(schedule.steps.size(), 0) {}

  PipelineTimes run() {
    const size_t stages = schedule_.steps.size();
    std::vector<size_t> at(stages, 0);
    std::vector<std::vector<PipelineEvent>> events(stages);
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t stage = 0; stage < stages; ++stage) {
        const auto& steps = schedule_.steps[stage];
        while (at[stage] < steps.size() &&
               go(static_cast<int>(stage), steps[at[stage]], events[stage])) {
          ++at[stage];
          moved = true;
        }
      }
    }
    PipelineTimes times;
    for (size_t stage = 0; stage < stages; ++stage) {
      if (at[stage] < schedule_.steps[stage].size()) {
        throw UsageError(base::str("the pipeline schedule \"", schedule_.name, "\": stage ", stage,
                                   " waits for ever.\n  check_pipeline says for what."));
      }
      times.stages.push_back(span_of(events[stage]));
      times.seconds = std::max(times.seconds, now_[stage]);
      times.events.insert(times.events.end(), events[stage].begin(), events[stage].end());
    }
    return times;
  }

 private:
  /// False: the message is not sent yet.
  bool go(int stage, const PipelineStep& step, std::vector<PipelineEvent>& events) {
    double& now = now_[static_cast<size_t>(stage)];
    const double start = now;
    if (is_compute(step.op)) {
      now += seconds_of(stage, step);
    } else {
      const PipelineMessage message = message_of(schedule_, stage, step);
      if (step == message.send) {
        arrivals_[{message.to, message.recv}] = now + costs_.message_seconds;
      } else {
        const auto arrival = arrivals_.find({stage, step});
        if (arrival == arrivals_.end()) return false;
        now = std::max(now, arrival->second);
      }
    }
    events.push_back({stage, step, start, now});
    return true;
  }

  double seconds_of(int stage, const PipelineStep& step) const {
    if (step.op == PipelineOp::forward) return costs_.forward.of(stage, step.chunk);
    const double weight = costs_.weight.of(stage, step.chunk);
    if (step.op == PipelineOp::weight) return weight;
    const double backward = costs_.backward.of(stage, step.chunk);
    return schedule_.splits_weight ? backward : backward + weight;
  }

  static StageSpan span_of(const std::vector<PipelineEvent>& events) {
    StageSpan span;
    bool first = true;
    for (const PipelineEvent& event : events) {
      if (is_compute(event.step.op)) extend(span, event, std::exchange(first, false));
    }
    return span;
  }

  const PipelineSchedule& schedule_;
  const PipelineCosts& costs_;
  std::vector<double> now_;                                  // by stage
  std::map<std::pair<int, PipelineStep>, double> arrivals_;  // by stage and receive
};

/// All steps as one stream of micro-batches, those of a step after those of the one before.
PipelineSchedule in_a_row(const PipelineSchedule& schedule, int steps) {
  PipelineSchedule row = schedule;
  row.micro_batches *= steps;
  for (auto& of_stage : row.steps) {
    const std::vector<PipelineStep> one = of_stage;
    of_stage.clear();
    for (int step = 0; step < steps; ++step) {
      for (PipelineStep op : one) {
        op.micro += step * schedule.micro_batches;
        of_stage.push_back(op);
      }
    }
  }
  return row;
}

}  // namespace

double ChunkSeconds::of(int stage, int chunk) const {
  if (by_stage.empty()) return everywhere;
  return by_stage[static_cast<size_t>(stage)][static_cast<size_t>(chunk)];
}

PipelineCosts even_costs(const StageSeconds& stage, int chunks) {
  PipelineCosts costs;
  costs.forward.everywhere = stage.forward / chunks;
  costs.backward.everywhere = stage.backward / chunks;
  costs.weight.everywhere = stage.weight / chunks;
  return costs;
}

PipelineTimes simulate(const PipelineSchedule& schedule, const PipelineCosts& costs) {
  check_costs(schedule, costs);
  return Clock(schedule, costs).run();
}

std::vector<std::vector<StageSpan>> spans_without_barrier(const PipelineSchedule& schedule,
                                                          const PipelineCosts& costs, int steps) {
  const PipelineTimes times = simulate(in_a_row(schedule, steps), costs);
  std::vector<std::vector<StageSpan>> spans(
      static_cast<size_t>(steps), std::vector<StageSpan>(static_cast<size_t>(schedule.stages)));
  for (const PipelineEvent& event : times.events) {
    if (!is_compute(event.step.op)) continue;
    const int step = event.step.micro / schedule.micro_batches;
    StageSpan& span = spans[static_cast<size_t>(step)][static_cast<size_t>(event.stage)];
    extend(span, event, span.busy_seconds == 0);
  }
  return spans;
}

StageSpan joined_span(const std::vector<std::vector<StageSpan>>& spans, int stage) {
  const auto at = static_cast<size_t>(stage);
  StageSpan all{.first_start = spans.front()[at].first_start,
                .last_end = spans.back()[at].last_end};
  for (const std::vector<StageSpan>& step : spans) all.busy_seconds += step[at].busy_seconds;
  return all;
}

}  // namespace lockstep::plan
