/// The clock of a pipeline schedule: when each stage does what, if its steps take given times.
#pragma once

#include <vector>

#include "lockstep/plan/bubble.h"
#include "lockstep/plan/pipeline_schedule.h"

namespace lockstep::plan {

/// Seconds of one operation on a chunk: the same on all, or by stage and chunk.
struct ChunkSeconds {
  double everywhere = 1;
  std::vector<std::vector<double>> by_stage = {};  // [stage][chunk]; empty: everywhere

  double of(int stage, int chunk) const;
};

/// Costs say nothing of the schedule: one that does not split weight gradients off takes
/// backward + weight for its backward.
struct PipelineCosts {
  ChunkSeconds forward;
  ChunkSeconds backward;  // gradients of the inputs
  ChunkSeconds weight;    // gradients of the weights
  /// From a send to the moment its message can be received. The stages compute meanwhile.
  double message_seconds = 0;
};

/// A stage's seconds cut into equal chunks.
PipelineCosts even_costs(const StageSeconds& stage, int chunks);

/// A send takes no time; a receive lasts until its message is there.
struct PipelineEvent {
  int stage = 0;
  PipelineStep step;
  double start = 0;  // seconds since the step began
  double end = 0;
};

struct PipelineTimes {
  std::vector<PipelineEvent> events;  // by stage, in its order
  std::vector<StageSpan> stages;
  double seconds = 0;  // of the step

  double bubble() const { return bubble_fraction(stages); }
};

/// Every stage does its next step as soon as it can. Throws UsageError for costs that are not those
/// of the schedule's stages and chunks, and for a schedule that stands still (pipeline_check.h).
PipelineTimes simulate(const PipelineSchedule& schedule, const PipelineCosts& costs);

/// The stages of `steps` steps in a row without a barrier between them: a stage begins its next
/// step when it has ended its own, whatever the others are at. By step, then by stage, on one
/// clock. Throws as simulate does.
std::vector<std::vector<StageSpan>> spans_without_barrier(const PipelineSchedule& schedule,
                                                          const PipelineCosts& costs, int steps);

/// The time from a stage's first start to its last end in steps that follow each other, and the
/// share of it in which it computes nothing: waits inside a step and between two.
/// `spans`: by step, of all stages.
StageSpan joined_span(const std::vector<std::vector<StageSpan>>& spans, int stage);

}  // namespace lockstep::plan
