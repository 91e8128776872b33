/// When the ranks did what: the timeline of chosen steps for trace.json, and the bubble of a
/// pipeline in all of them.
///
/// Times are of the steady clock, which the ranks of one host share; between hosts they are not
/// compared.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/files/trace_file.h"
#include "lockstep/plan/bubble.h"
#include "lockstep/plan/pipeline_timing.h"
#include "lockstep/plan/run_layout.h"
#include "lockstep/plan/step_range.h"
#include "lockstep/train/step_runner.h"

namespace lockstep {

/// Of a pipeline, as shares of the stages' time (plan/bubble.h).
struct BubbleReport {
  double measured = 0;            // the median over steps, without the first ones
  double planned = 0;             // simulated with the mean times that were measured
  std::optional<double> formula;  // with the means over all stages, where there is a closed form
};

/// Mean seconds of a stage's operations, by chunk.
struct StageMeans {
  std::vector<double> forward;
  std::vector<double> backward;
  std::vector<double> weight;
};

class Timeline {
 public:
  /// `inputs` and `place` must outlive it. `trace_steps`: of log.trace_steps (plan/step_range.h).
  Timeline(const plan::StepInputs& inputs, const plan::RankPlace& place,
           const std::string& trace_steps);

  void add(int64_t step, const std::vector<TimedStep>& timed);

  bool traces() const { return traces_.first > 0; }
  /// All ranks of `world` call them; what they give is rank 0's.
  std::vector<files::TraceEvent> gather(ProcessGroup& world) const;
  BubbleReport bubble(ProcessGroup& world, int64_t skip_steps) const;

 private:
  struct Sum {
    double seconds = 0;
    int64_t count = 0;
  };
  StageMeans means() const;
  plan::PipelineTimes simulated(const std::vector<StageMeans>& stages) const;
  std::string name_of(const plan::Step& step) const;

  const plan::StepInputs& inputs_;
  const plan::RankPlace& place_;
  plan::StepRange traces_;
  std::vector<std::pair<int64_t, std::vector<TimedStep>>> traced_;
  std::vector<plan::StageSpan> spans_;  // by step
  std::vector<Sum> sums_[3];            // forward, backward, weight; by chunk
};

}  // namespace lockstep
