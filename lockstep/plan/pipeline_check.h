/// Proof that a pipeline schedule can be carried out, whatever the timing of stages and messages.
///
/// Each stage waits for one thing at a time and each edge is a queue, so what runs to its end in
/// one order of events does so in every one: the stages are run in turn until none can go on. If
/// steps are left then, the stages that wait for each other are the message.
#pragma once

#include "lockstep/plan/pipeline_schedule.h"

namespace lockstep::plan {

/// Throws UsageError, naming stages and steps, unless
///   - each stage has one forward and one backward of every (chunk, micro-batch), backward after
///     forward; where the schedule splits them, one weight after the backward, else none;
///   - backwards and weights of a chunk ascend in micro-batch;
///   - nothing is computed before its input is there, nor sent before it is computed;
///   - every message is sent once and received once, and those of an edge in one order;
///   - no stages wait for each other for ever.
///
/// buffers   messages that an edge (from, to, direction) holds before its sender waits; 0: a send
///           waits for its receive
void check_pipeline(const PipelineSchedule& schedule, int buffers);

/// The fewest `buffers` with which a schedule that is right otherwise never stands still.
int fewest_buffers(const PipelineSchedule& schedule);

// The most micro-batches that `stage` holds at once, a chunk's each counted as one.

/// From forward to the end of backward: activations, where weights are not split off.
int peak_in_flight(const PipelineSchedule& schedule, int stage);

/// From backward to the end of weight: what weight gradients that are put off need.
int peak_weights_held(const PipelineSchedule& schedule, int stage);

/// From forward to the end of the last step that needs it: weight, or backward without one.
int peak_held(const PipelineSchedule& schedule, int stage);

}  // namespace lockstep::plan
