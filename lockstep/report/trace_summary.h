/// A trace as figures: how long each rank computed, communicated and waited.
#pragma once

#include <string>
#include <vector>

#include "lockstep/files/trace_file.h"

namespace lockstep::report {

struct RankSummary {
  int rank = 0;
  double compute_seconds = 0;        // forward, backward, weight
  double communication_seconds = 0;  // beside the computing or not
  /// Of its steps' time, from the first start to the last end of any rank: the waits for the first
  /// input and for the others' end are in it. The bubble is the mean over ranks.
  double idle_share = 0;
};

struct TraceSummary {
  std::vector<RankSummary> ranks;
  int steps = 0;
  /// plan::bubble_fraction of the ranks' steps, the mean over steps. A rank's step ends where its
  /// optimizer begins.
  double bubble = 0;
};

/// Of the events that were measured, or of those that were planned.
TraceSummary summarize(const std::vector<files::TraceEvent>& events, bool planned);

/// A line a rank, and the bubble.
std::string text_of(const TraceSummary& summary);

}  // namespace lockstep::report
