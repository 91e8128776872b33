/// A pipeline schedule run without time: which stages go on, and which wait for each other.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/plan/detail/pipeline_place.h"

namespace lockstep::plan::detail {

/// All stages, run in turn until none can go on. The schedule's messages have both ends, in one
/// order (pipeline_check.h).
class TokenRun {
 public:
  /// buffers   messages that an edge holds before its sender waits; 0: a send waits for its receive
  TokenRun(const PipelineSchedule& schedule, int64_t buffers);

  bool finished() const;

  /// The stages that wait for each other, a line each. Of a run that has not finished.
  std::string cycle() const;

 private:
  bool ended(int stage) const;
  const PipelineStep& step_of(int stage) const;
  bool advance(int stage);
  int waits_for(int stage) const;

  const PipelineSchedule& schedule_;
  int64_t buffers_;
  std::vector<size_t> at_;        // the step that is next, by stage
  std::map<Edge, int64_t> held_;  // messages under way
};

}  // namespace lockstep::plan::detail
