/// A copy in memory of what a rank owns of a run's state, to go back to: masters, the optimizer's
/// moments and its count of steps, the moving average, and the model's running values. Each rank
/// copies its own; nothing is sent but, where zero1 or zero2 keep parameters whole, a publish when
/// it is brought back.
///
/// Holds   4 bytes an element that this rank owns, for the master and for each moment, and for the
///         average where there is one                        test: StateCopy.HoldsWhatIsPlanned
#pragma once

#include <vector>

#include "lockstep/memory/account.h"
#include "lockstep/train/model_state.h"
#include "lockstep/train/param_average.h"

namespace lockstep {

class StateCopy {
 public:
  /// `average` may be null. Both must outlive this; all state is in memory.
  StateCopy(ModelState& state, ParamAverage* average);

  /// After so many steps.
  void keep(int64_t steps_done);
  /// All ranks call it, outside of any step.
  void bring_back();

  /// Of the run, when the copy was made.
  int64_t steps_done() const { return steps_done_; }

 private:
  ModelState& state_;
  ParamAverage* average_;
  size_t masters_;  // numbers that this rank owns
  size_t moments_;  // of all kinds
  memory::Counted counted_;
  std::vector<float> values_;  // masters, then moments kind after kind, then the average
  std::vector<at::Tensor> running_values_;
  int64_t optimizer_steps_ = 0;
  int64_t steps_done_ = 0;
};

}  // namespace lockstep
