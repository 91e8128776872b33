#include "lockstep/plan/pipeline_check.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/plan/detail/pipeline_place.h"
#include "lockstep/plan/detail/token_run.h"

namespace lockstep::plan {
namespace {

using detail::Edge;
using detail::Place;
using detail::sends;
using detail::TokenRun;

[[noreturn]] void refuse_stage(const PipelineSchedule& schedule, int stage,
                               const std::string& what) {
  throw UsageError(
      base::str("the pipeline schedule \"", schedule.name, "\": stage ", stage, " ", what));
}

void check_shape(const PipelineSchedule& schedule) {
  const auto refuse = [&](const std::string& what) {
    throw UsageError(base::str("the pipeline schedule \"", schedule.name, "\": ", what));
  };
  if (schedule.stages < 1 || schedule.chunks < 1 || schedule.micro_batches < 0) {
    refuse(base::str(schedule.stages, " stages of ", schedule.chunks, " chunks and ",
                     schedule.micro_batches,
                     " micro-batches: at least 1 stage, 1 chunk and 0 micro-batches are needed."));
  }
  if (std::ssize(schedule.steps) != schedule.stages) {
    refuse(base::str("it has the steps of ", schedule.steps.size(), " stages, not of ",
                     schedule.stages, "."));
  }
}

/// Each step of the stage is one that there is, comes once, and has another end if it is a message.
/// None of the computing is missing.
void check_steps(const PipelineSchedule& schedule, int stage) {
  std::set<PipelineStep> found;
  for (size_t i = 0; i < schedule.steps[static_cast<size_t>(stage)].size(); ++i) {
    const Place at(schedule, stage, i);
    const PipelineStep& step = at.step();
    if (step.chunk < 0 || step.chunk >= schedule.chunks || step.micro < 0 ||
        step.micro >= schedule.micro_batches) {
      at.refuse(" is of chunk ", step.chunk, " and micro-batch ", step.micro, ": there are ",
                schedule.chunks, " chunks and ", schedule.micro_batches, " micro-batches.");
    }
    if (!found.insert(step).second) at.refuse(" comes a second time.");
    const bool alone = !is_compute(step.op) && message_of(schedule, stage, step).none();
    if (alone) at.refuse(" has no stage at its other end.");
  }
  for (const PipelineOp op : {PipelineOp::forward, PipelineOp::backward, PipelineOp::weight}) {
    if (op == PipelineOp::weight && !schedule.splits_weight) continue;
    for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
      for (int micro = 0; micro < schedule.micro_batches; ++micro) {
        const PipelineStep step{op, chunk, micro};
        if (found.contains(step)) continue;
        refuse_stage(schedule, stage, "never does " + text_of(step, schedule.chunks > 1) + ".");
      }
    }
  }
}

/// What a stage has done so far, as its steps are walked in order.
class StageWalk {
 public:
  StageWalk(const PipelineSchedule& schedule, int stage) : schedule_(schedule), stage_(stage) {}

  void check() {
    const auto& steps = schedule_.steps[static_cast<size_t>(stage_)];
    for (size_t i = 0; i < steps.size(); ++i) check_step(Place(schedule_, stage_, i));
  }

 private:
  bool done(PipelineOp op, int chunk, int micro) const {
    return done_.contains({op, chunk, micro});
  }

  void check_step(const Place& at) {
    const PipelineStep& step = at.step();
    if (is_compute(step.op)) {
      check_computing(at);
    } else if (sends(step.op)) {
      const bool forward = step.op == PipelineOp::send_forward;
      const PipelineStep made{forward ? PipelineOp::forward : PipelineOp::backward, step.chunk,
                              step.micro};
      if (!done_.contains(made)) at.refuse(" sends what ", at.name(made), " has not made yet.");
    }
    done_.insert(step);
  }

  void check_computing(const Place& at) {
    const PipelineStep& step = at.step();
    if (step.op == PipelineOp::weight) {
      if (!schedule_.splits_weight) at.refuse(": this schedule has its weights in backward.");
      expect_before(at, {PipelineOp::backward, step.chunk, step.micro});
    }
    if (step.op == PipelineOp::backward) {
      expect_before(at, {PipelineOp::forward, step.chunk, step.micro});
    }
    if (step.op != PipelineOp::forward) expect_ascending(at);
    if (step.op != PipelineOp::weight) expect_input(at);
  }

  void expect_before(const Place& at, const PipelineStep& needed) const {
    if (!done_.contains(needed)) at.refuse(" comes before ", at.name(needed), ".");
  }

  void expect_ascending(const Place& at) {
    const PipelineStep& step = at.step();
    const auto [last, first] = last_.try_emplace({step.op, step.chunk}, step.micro);
    if (!first && last->second > step.micro) {
      at.refuse(" comes after ", at.name({step.op, step.chunk, last->second}),
                ": gradients are summed in ascending micro-batches.");
    }
    last->second = step.micro;
  }

  /// Received, or computed before by this very stage.
  void expect_input(const Place& at) const {
    const PipelineStep& step = at.step();
    const PipelineMessage input = input_of(schedule_, stage_, step);
    if (!input.none()) {
      if (!done_.contains(input.recv)) {
        at.refuse(" computes before its input has come: ", at.name(input.recv),
                  " must stand before it.");
      }
      return;
    }
    const int own = schedule_.virtual_stage(stage_, step.chunk);
    const int neighbour = step.op == PipelineOp::forward ? own - 1 : own + 1;
    if (neighbour < 0 || neighbour >= schedule_.virtual_stages()) return;
    expect_before(at, {step.op, schedule_.chunk_of(neighbour), step.micro});
  }

  const PipelineSchedule& schedule_;
  int stage_;
  std::set<PipelineStep> done_;
  std::map<std::pair<PipelineOp, int>, int> last_;  // micro-batch, by operation and chunk
};

/// The sends of each edge and its receives, in their stages' order.
struct Ends {
  std::vector<Place> sends;
  std::vector<Place> recvs;
};

std::map<Edge, Ends> ends_of(const PipelineSchedule& schedule) {
  std::map<Edge, Ends> edges;
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const auto& steps = schedule.steps[static_cast<size_t>(stage)];
    for (size_t i = 0; i < steps.size(); ++i) {
      if (is_compute(steps[i].op)) continue;
      Ends& ends = edges[detail::edge_of(message_of(schedule, stage, steps[i]))];
      (sends(steps[i].op) ? ends.sends : ends.recvs).emplace_back(schedule, stage, i);
    }
  }
  return edges;
}

/// How the receiver of a send calls it.
PipelineStep received_as(const PipelineSchedule& schedule, const Edge& edge, const Place& send) {
  return message_of(schedule, std::get<0>(edge), send.step()).recv;
}

void check_both_ends(const PipelineSchedule& schedule, const Edge& edge, const Ends& ends) {
  const auto& [from, to, forward] = edge;
  std::set<PipelineStep> sent;
  std::set<PipelineStep> received;
  for (const Place& send : ends.sends) sent.insert(received_as(schedule, edge, send));
  for (const Place& recv : ends.recvs) received.insert(recv.step());
  for (const Place& recv : ends.recvs) {
    if (!sent.contains(recv.step())) recv.refuse(" has no send on stage ", from, ".");
  }
  for (const Place& send : ends.sends) {
    if (received.contains(received_as(schedule, edge, send))) continue;
    send.refuse(" has no receive on stage ", to, ".");
  }
}

/// Of an edge that has both ends of its messages.
void check_order(const PipelineSchedule& schedule, const Edge& edge, const Ends& ends) {
  for (size_t i = 0; i < ends.sends.size(); ++i) {
    if (received_as(schedule, edge, ends.sends[i]) == ends.recvs[i].step()) continue;
    ends.recvs[i].refuse(" is crossed: the next message from stage ", std::get<0>(edge), " is ",
                         ends.sends[i].text(), ".\n  Receive in the order of the sends.");
  }
}

int64_t most_messages(const PipelineSchedule& schedule) {
  return int64_t{schedule.chunks} * schedule.micro_batches;  // of an edge
}

/// The largest count of `begin` steps whose `end` step has not been.
int peak(const PipelineSchedule& schedule, int stage, PipelineOp begin, PipelineOp end) {
  int now = 0;
  int most = 0;
  for (const PipelineStep& step : schedule.steps[static_cast<size_t>(stage)]) {
    if (step.op == begin) most = std::max(most, ++now);
    if (step.op == end) --now;
  }
  return most;
}

}  // namespace

void check_pipeline(const PipelineSchedule& schedule, int buffers) {
  check_shape(schedule);
  for (int stage = 0; stage < schedule.stages; ++stage) check_steps(schedule, stage);
  const std::map<Edge, Ends> edges = ends_of(schedule);
  for (const auto& [edge, ends] : edges) check_both_ends(schedule, edge, ends);
  for (int stage = 0; stage < schedule.stages; ++stage) StageWalk(schedule, stage).check();
  for (const auto& [edge, ends] : edges) check_order(schedule, edge, ends);
  const TokenRun run(schedule, buffers);
  if (run.finished()) return;
  const bool fits = TokenRun(schedule, most_messages(schedule)).finished();
  throw UsageError(
      base::str("the pipeline schedule \"", schedule.name, "\" stands still with ", buffers,
                " messages held by an edge:", run.cycle(),
                fits ? base::str("\n  It needs edges that hold ", fewest_buffers(schedule), ".")
                     : "\n  No number of messages is enough: change the order of these steps."));
}

int fewest_buffers(const PipelineSchedule& schedule) {
  int64_t too_few = -1;
  int64_t enough = most_messages(schedule);
  while (enough - too_few > 1) {
    const int64_t middle = (too_few + enough) / 2;
    (TokenRun(schedule, middle).finished() ? enough : too_few) = middle;
  }
  return static_cast<int>(enough);
}

int peak_in_flight(const PipelineSchedule& schedule, int stage) {
  return peak(schedule, stage, PipelineOp::forward, PipelineOp::backward);
}

int peak_weights_held(const PipelineSchedule& schedule, int stage) {
  if (!schedule.splits_weight) return 0;
  return peak(schedule, stage, PipelineOp::backward, PipelineOp::weight);
}

int peak_held(const PipelineSchedule& schedule, int stage) {
  return peak(schedule, stage, PipelineOp::forward,
              schedule.splits_weight ? PipelineOp::weight : PipelineOp::backward);
}

}  // namespace lockstep::plan
