/// Steps and edges of a pipeline schedule, as the checks of it name them.
#pragma once

#include <cstddef>
#include <string>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/plan/pipeline_schedule.h"

namespace lockstep::plan::detail {

using Edge = std::tuple<int, int, bool>;  // from, to, forward

inline bool sends(PipelineOp op) {
  return op == PipelineOp::send_forward || op == PipelineOp::send_backward;
}

inline Edge edge_of(const PipelineMessage& message) {
  return {message.from, message.to, message.send.op == PipelineOp::send_forward};
}

/// A step of a schedule, and how messages to people call it.
class Place {
 public:
  Place(const PipelineSchedule& schedule, int stage, size_t index)
      : schedule_(&schedule), stage_(stage), index_(index) {}

  const PipelineStep& step() const { return schedule_->steps[static_cast<size_t>(stage_)][index_]; }
  std::string text() const {
    return base::str("stage ", stage_, ", step ", index_, " (", name(step()), ")");
  }
  std::string name(const PipelineStep& step) const { return text_of(step, schedule_->chunks > 1); }

  template <class... Pieces>
  [[noreturn]] void refuse(const Pieces&... pieces) const {
    throw UsageError(
        base::str("the pipeline schedule \"", schedule_->name, "\": ", text(), pieces...));
  }

 private:
  const PipelineSchedule* schedule_;
  int stage_;
  size_t index_;
};

}  // namespace lockstep::plan::detail
