#include "lockstep/plan/pipeline_schedule.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::plan {
namespace {

/// How many chunks a stage has in a schedule: from `least` to `most`.
struct ChunkRule {
  std::string schedule;
  int least = 1;
  int most = 1;
};

constexpr int kAny = 1 << 20;

const std::vector<ChunkRule>& chunk_rules() {
  static const std::vector<ChunkRule> rules = {
      {"gpipe"}, {"1f1b"}, {"interleaved", 2, kAny}, {"zero-bubble"}, {"zero-bubble-v", 2, 2}};
  return rules;
}

const ChunkRule& rule_of(const std::string& schedule) {
  for (const ChunkRule& rule : chunk_rules()) {
    if (rule.schedule == schedule) return rule;
  }
  const std::string near = base::nearest(schedule, pipeline_schedules());
  throw UsageError(base::str("there is no pipeline schedule \"", schedule, "\".",
                             near.empty() ? "" : base::str("\n  Did you mean ", near, "?"),
                             "\n  Use ", base::joined(pipeline_schedules(), " or "), "."));
}

void require(const PipelineOptions& options) {
  const ChunkRule& rule = rule_of(options.schedule);
  if (options.stages < 1) {
    throw UsageError(base::str("a pipeline of ", options.stages,
                               " stages: it has at least 1.\n  One stage is no pipeline."));
  }
  if (options.micro_batches < 0) {
    throw UsageError(base::str("a pipeline of ", options.micro_batches,
                               " micro-batches: their number is 0 or more."));
  }
  if (options.chunks >= rule.least && options.chunks <= rule.most) return;
  const std::string fits =
      rule.most == kAny ? base::str("at least ", rule.least) : std::to_string(rule.most);
  throw UsageError(
      base::str("the schedule ", options.schedule, " cuts a stage into ", fits, " chunk",
                rule.most == 1 ? "" : "s", ", not ", options.chunks, ".\n  Use ", rule.least,
                " chunk", rule.least == 1 ? "" : "s",
                options.chunks > 1 && rule.most == 1 ? ", or the schedule interleaved." : "."));
}

std::vector<PipelineStep> computing_of(const PipelineOptions& options, int stage) {
  const auto& [schedule, stages, chunks, micro_batches] = options;
  if (schedule == "gpipe") return gpipe(stages, micro_batches);
  if (schedule == "1f1b") return one_f_one_b(stage, stages, micro_batches);
  if (schedule == "interleaved") return interleaved(stage, stages, chunks, micro_batches);
  if (schedule == "zero-bubble") return zero_bubble(stage, stages, micro_batches);
  return zero_bubble_v(stage, stages, micro_batches);
}

/// The step of virtual stage `to` that is next after one of `from`, as a message between them.
PipelineMessage message(const PipelineSchedule& schedule, int from, int to, PipelineOp op,
                        int micro) {
  if (std::min(from, to) < 0 || std::max(from, to) >= schedule.virtual_stages()) return {};
  const int sender = schedule.stage_of(from);
  const int receiver = schedule.stage_of(to);
  if (sender == receiver) return {};
  const bool forward = op == PipelineOp::forward;
  return {.from = sender,
          .to = receiver,
          .send = {forward ? PipelineOp::send_forward : PipelineOp::send_backward,
                   schedule.chunk_of(from), micro},
          .recv = {forward ? PipelineOp::recv_forward : PipelineOp::recv_backward,
                   schedule.chunk_of(to), micro}};
}

}  // namespace

int PipelineSchedule::stage_of(int virtual_stage) const {
  const int place = virtual_stage % stages;
  const bool back = placement == PipelinePlacement::v && chunk_of(virtual_stage) % 2 == 1;
  return back ? stages - 1 - place : place;
}

int PipelineSchedule::virtual_stage(int stage, int chunk) const {
  const bool back = placement == PipelinePlacement::v && chunk % 2 == 1;
  return chunk * stages + (back ? stages - 1 - stage : stage);
}

const std::vector<std::string>& pipeline_schedules() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const ChunkRule& rule : chunk_rules()) all.push_back(rule.schedule);
    return all;
  }();
  return names;
}

int fewest_chunks(const std::string& schedule) { return rule_of(schedule).least; }

bool is_compute(PipelineOp op) {
  return op == PipelineOp::forward || op == PipelineOp::backward || op == PipelineOp::weight;
}

std::string text_of(const PipelineStep& step, bool with_chunk) {
  static const char* const kLetters[] = {"F", "B", "W", "SF", "RF", "SB", "RB"};
  const std::string text = base::str(kLetters[static_cast<int>(step.op)], step.micro);
  return with_chunk ? base::str(text, ".", step.chunk) : text;
}

PipelineMessage result_of(const PipelineSchedule& schedule, int stage, const PipelineStep& step) {
  const int from = schedule.virtual_stage(stage, step.chunk);
  const int to = step.op == PipelineOp::forward ? from + 1 : from - 1;
  return message(schedule, from, to, step.op, step.micro);
}

PipelineMessage input_of(const PipelineSchedule& schedule, int stage, const PipelineStep& step) {
  const int to = schedule.virtual_stage(stage, step.chunk);
  const int from = step.op == PipelineOp::forward ? to - 1 : to + 1;
  return message(schedule, from, to, step.op, step.micro);
}

PipelineMessage message_of(const PipelineSchedule& schedule, int stage, const PipelineStep& step) {
  const bool forward = step.op == PipelineOp::send_forward || step.op == PipelineOp::recv_forward;
  const bool sends = step.op == PipelineOp::send_forward || step.op == PipelineOp::send_backward;
  const PipelineStep computing{forward ? PipelineOp::forward : PipelineOp::backward, step.chunk,
                               step.micro};
  return sends ? result_of(schedule, stage, computing) : input_of(schedule, stage, computing);
}

PipelineSchedule with_communication(PipelineSchedule schedule) {
  const auto moves = [](const PipelineStep& step) {
    return step.op == PipelineOp::forward || step.op == PipelineOp::backward;
  };
  // What travels on each edge, as the receives, in the order of the sends.
  std::map<std::tuple<int, int, PipelineOp>, std::deque<PipelineStep>> edges;
  for (int stage = 0; stage < schedule.stages; ++stage) {
    for (const PipelineStep& step : schedule.steps[static_cast<size_t>(stage)]) {
      if (!moves(step)) continue;
      const PipelineMessage result = result_of(schedule, stage, step);
      if (!result.none()) edges[{stage, result.to, step.op}].push_back(result.recv);
    }
  }
  for (int stage = 0; stage < schedule.stages; ++stage) {
    std::vector<PipelineStep> computing;
    computing.swap(schedule.steps[static_cast<size_t>(stage)]);
    std::vector<PipelineStep>& steps = schedule.steps[static_cast<size_t>(stage)];
    std::set<PipelineStep> received;
    for (const PipelineStep& step : computing) {
      const bool talks = moves(step);
      const PipelineMessage input = talks ? input_of(schedule, stage, step) : PipelineMessage{};
      if (!input.none() && !received.contains(input.recv)) {
        std::deque<PipelineStep>& edge = edges[{input.from, stage, step.op}];
        const bool sent = std::find(edge.begin(), edge.end(), input.recv) != edge.end();
        if (!sent) edge.push_front(input.recv);  // nobody makes it: for the check to find
        while (!received.contains(input.recv)) {
          steps.push_back(edge.front());
          received.insert(edge.front());
          edge.pop_front();
        }
      }
      steps.push_back(step);
      const PipelineMessage result = talks ? result_of(schedule, stage, step) : PipelineMessage{};
      if (!result.none()) steps.push_back(result.send);
    }
  }
  return schedule;
}

PipelineSchedule plan_pipeline(const PipelineOptions& options) {
  require(options);
  PipelineSchedule schedule{.name = options.schedule,
                            .stages = options.stages,
                            .chunks = options.chunks,
                            .micro_batches = options.micro_batches,
                            .placement = options.schedule == "zero-bubble-v"
                                             ? PipelinePlacement::v
                                             : PipelinePlacement::loop,
                            .splits_weight = options.schedule.starts_with("zero-bubble"),
                            .steps = {}};
  for (int stage = 0; stage < options.stages; ++stage) {
    schedule.steps.push_back(computing_of(options, stage));
  }
  return with_communication(std::move(schedule));
}

}  // namespace lockstep::plan
