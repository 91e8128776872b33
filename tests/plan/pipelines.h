/// Pipelines of every schedule, small and odd ones among them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "lockstep/plan/pipeline_schedule.h"

namespace lockstep::plan {

inline void for_each_pipeline(const std::function<void(const PipelineSchedule&)>& check) {
  for (const auto& [schedule, chunks] : {std::pair{"gpipe", 1},
                                         {"1f1b", 1},
                                         {"interleaved", 2},
                                         {"interleaved", 3},
                                         {"zero-bubble", 1},
                                         {"zero-bubble-v", 2}}) {
    for (const int stages : {1, 2, 3, 4, 7, 8}) {
      for (const int micro_batches : {0, 1, 2, 3, 4, 5, 8, 16, 21}) {
        SCOPED_TRACE(testing::Message() << schedule << ", " << stages << " stages, " << chunks
                                        << " chunks, " << micro_batches << " micro-batches");
        check(plan_pipeline({schedule, stages, chunks, micro_batches}));
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

/// The most forwards of `stage` whose backward has not ended.
inline int in_flight(const PipelineSchedule& schedule, int stage) {
  int now = 0;
  int most = 0;
  for (const PipelineStep& step : schedule.steps[static_cast<size_t>(stage)]) {
    if (step.op == PipelineOp::forward) most = std::max(most, ++now);
    if (step.op == PipelineOp::backward) --now;
  }
  return most;
}

}  // namespace lockstep::plan
