/// What each stage of a pipeline does in a step, as a list: the runtime carries it out, the
/// simulator times it (pipeline_timing.h), the checker proves it (pipeline_check.h).
///
/// The layers are cut into stages x chunks virtual stages, each micro-batch passes all of them
/// forward and then backward. 4 stages, 1F1B, 4 micro-batches, backward twice as long as forward:
///
///   time     0  1  2  3  4  5  6  7  8  9  10 11 12 13 14 15 16 17 18 19 20
///   stage 0  F0 F1 F2 F3 .  .  .  .  .  .  B0 -- .  B1 -- .  B2 -- .  B3 --
///   stage 1  .  F0 F1 F2 .  .  .  .  B0 -- F3 B1 -- .  B2 -- .  B3 -- .  .
///   stage 2  .  .  F0 F1 .  .  B0 -- F2 B1 -- F3 B2 -- .  B3 -- .  .  .  .
///   stage 3  .  .  .  F0 B0 -- F1 B1 -- F2 B2 -- F3 B3 -- .  .  .  .  .  .
///
/// Order   backwards and weights ascend in micro-batch on every chunk, so gradients are summed in
/// one
///         order whatever the schedule      test: PipelineSchedule.BackwardsAndWeightsAscend
/// Holds   forwards whose backward has not ended, in chunks: gpipe M, 1f1b and zero-bubble
///         min(M, P - stage), interleaved min(vM, 2(P - stage - 1) + (v-1)P + 1) for M a multiple
///         of P, zero-bubble-v at most 2P      test: PipelineSchedule.InFlightIsTheClosedForm
/// Source  Huang et al. 2019 (GPipe); Narayanan et al. 2021, arXiv:2104.04473 (1F1B, interleaved);
///         Qi et al. 2023, arXiv:2401.10241 (zero bubble);  docs/concepts/pipeline.md
#pragma once

#include <compare>
#include <string>
#include <vector>

namespace lockstep::plan {

enum class PipelineOp {
  forward,
  backward,  // of inputs and weights; of inputs alone where the schedule splits them
  weight,    // the gradient of the weights, where it is split off
  send_forward,
  recv_forward,
  send_backward,
  recv_backward,
};

/// A step of one stage. The chunk of a send is the one whose result goes, that of a receive the one
/// that takes it in. Sends are queued; a receive waits.
struct PipelineStep {
  PipelineOp op = PipelineOp::forward;
  int chunk = 0;  // which of the stage's chunks, 0 .. chunks-1
  int micro = 0;  // micro-batch of the stream, 0 .. micro_batches-1
  auto operator<=>(const PipelineStep&) const = default;
};

/// Where virtual stage k lies: on stage k % P, or there and back: 0 .. P-1, P-1 .. 0.
enum class PipelinePlacement { loop, v };

struct PipelineSchedule {
  std::string name;  // "gpipe", "1f1b", "interleaved", "zero-bubble", "zero-bubble-v", or a file's
  int stages = 1;
  int chunks = 1;  // of a stage
  int micro_batches = 0;
  PipelinePlacement placement = PipelinePlacement::loop;
  bool splits_weight = false;  // backward gives gradients of inputs only, `weight` follows
  std::vector<std::vector<PipelineStep>> steps;  // by stage

  int virtual_stages() const { return stages * chunks; }
  int stage_of(int virtual_stage) const;
  int chunk_of(int virtual_stage) const { return virtual_stage / stages; }
  int virtual_stage(int stage, int chunk) const;
  bool operator==(const PipelineSchedule&) const = default;
};

struct PipelineOptions {
  /// gpipe: simplest, holds all micro-batches. 1f1b: the same time, holds at most the depth.
  /// interleaved: a smaller bubble for more messages. zero-bubble: 1f1b with weight gradients where
  /// stages would wait. zero-bubble-v: two chunks there and back, no bubble where all three take
  /// the same time.
  std::string schedule = "1f1b";
  int stages = 1;
  int chunks = 1;         // of a stage: 1; interleaved at least 2; zero-bubble-v 2
  int micro_batches = 1;  // of the whole step: those of all leaves of the rank, in one stream
};

/// The whole plan, messages included. Throws UsageError: no such schedule, chunks that it does not
/// have, no stage, a negative count.
PipelineSchedule plan_pipeline(const PipelineOptions& options);

/// The names that plan_pipeline knows.
const std::vector<std::string>& pipeline_schedules();

/// The fewest chunks that a stage has in `schedule`. Throws UsageError: no such schedule.
int fewest_chunks(const std::string& schedule);

/// `schedule`, which only computes, with the messages between its stages: a send right after the
/// step that makes it, a receive right before the step that takes it in. An edge (from, to,
/// direction) is a queue: where a message would overtake another on its edge, the other is received
/// before it.
PipelineSchedule with_communication(PipelineSchedule schedule);

/// What a virtual stage's `op` (forward, backward) takes in or hands on, as the steps at both ends.
/// none: the neighbour lies on the same stage, or there is none.
struct PipelineMessage {
  int from = -1;
  int to = -1;
  PipelineStep send;
  PipelineStep recv;
  bool none() const { return from < 0; }
};
/// The message that the result of forward or backward `step` of `stage` is.
PipelineMessage result_of(const PipelineSchedule& schedule, int stage, const PipelineStep& step);
/// The message that forward or backward `step` of `stage` waits for.
PipelineMessage input_of(const PipelineSchedule& schedule, int stage, const PipelineStep& step);
/// The message that a send or receive of `stage` is one end of.
PipelineMessage message_of(const PipelineSchedule& schedule, int stage, const PipelineStep& step);

bool is_compute(PipelineOp op);

/// "F0", "B3", "W3"; sends and receives "SF0" "RF0" "SB0" "RB0"; with a chunk micro.chunk, "F0.1".
std::string text_of(const PipelineStep& step, bool with_chunk);

// The orders of one stage's computing, without messages. P stages, M micro-batches.

/// All forwards, then all backwards; forward and backward in turn on a stage of its own.
std::vector<PipelineStep> gpipe(int stages, int micro_batches);

/// P - stage - 1 forwards to fill the pipeline, then a forward and a backward in turn.
std::vector<PipelineStep> one_f_one_b(int stage, int stages, int micro_batches);

/// 1F1B over several chunks, P micro-batches through one chunk before the next. Any M: it is the
/// order for the next multiple of P, without the micro-batches that are not there.
std::vector<PipelineStep> interleaved(int stage, int stages, int chunks, int micro_batches);

/// ZB-H1: 1F1B whose weight gradients lag `stage` micro-batches behind, so that the last backward
/// reaches stage 0 early and the others have weight gradients to fill the wait. From forward to
/// weight gradient no stage holds more than min(M, P) micro-batches, what stage 0 of 1F1B holds.
std::vector<PipelineStep> zero_bubble(int stage, int stages, int micro_batches);

/// ZB-V: chunk 0 on the way there, chunk 1 on the way back; 2 P chunks from forward to weight
/// gradient at most. Without a wait inside a stage where F = B = W and M >= 2 P - 1; any M.
std::vector<PipelineStep> zero_bubble_v(int stage, int stages, int micro_batches);

}  // namespace lockstep::plan
