#include "lockstep/plan/detail/token_run.h"

#include "lockstep/base/assert.h"
#include "lockstep/base/str.h"

namespace lockstep::plan::detail {

TokenRun::TokenRun(const PipelineSchedule& schedule, int64_t buffers)
    : schedule_(schedule), buffers_(buffers), at_(schedule.steps.size(), 0) {
  for (bool moved = true; moved;) {
    moved = false;
    for (int stage = 0; stage < schedule.stages; ++stage) {
      while (advance(stage)) moved = true;
    }
  }
}

bool TokenRun::finished() const {
  for (int stage = 0; stage < schedule_.stages; ++stage) {
    if (!ended(stage)) return false;
  }
  return true;
}

std::string TokenRun::cycle() const {
  int stage = 0;
  while (ended(stage)) ++stage;
  // Whoever waits leads to the cycle in as many steps as there are stages.
  for (int i = 0; i < schedule_.stages; ++i) stage = waits_for(stage);
  std::string text;
  const int first = stage;
  do {
    const Place place(schedule_, stage, at_[static_cast<size_t>(stage)]);
    text += base::str("\n  ", place.text(), " waits for stage ", waits_for(stage));
    stage = waits_for(stage);
  } while (stage != first);
  return text;
}

bool TokenRun::ended(int stage) const {
  return at_[static_cast<size_t>(stage)] == schedule_.steps[static_cast<size_t>(stage)].size();
}

const PipelineStep& TokenRun::step_of(int stage) const {
  return schedule_.steps[static_cast<size_t>(stage)][at_[static_cast<size_t>(stage)]];
}

bool TokenRun::advance(int stage) {
  if (ended(stage)) return false;
  const PipelineStep& step = step_of(stage);
  if (!is_compute(step.op)) {
    const PipelineMessage message = message_of(schedule_, stage, step);
    int64_t& held = held_[edge_of(message)];
    if (!sends(step.op)) {
      if (held == 0) return false;
      --held;
    } else {
      // An edge without room takes what its receiver stands there for.
      const bool meets = buffers_ == 0 && !ended(message.to) && step_of(message.to) == message.recv;
      if (held >= buffers_ && !meets) return false;
      ++held;
    }
  }
  ++at_[static_cast<size_t>(stage)];
  return true;
}

/// Of a stage that cannot go on. A stage that has ended is waited for by nobody: its messages
/// were all received or are all there.
int TokenRun::waits_for(int stage) const {
  LOCKSTEP_ASSERT(!ended(stage), "a stage that has ended waits for nobody");
  const PipelineMessage message = message_of(schedule_, stage, step_of(stage));
  return sends(step_of(stage).op) ? message.to : message.from;
}

}  // namespace lockstep::plan::detail
