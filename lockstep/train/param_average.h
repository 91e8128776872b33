/// The moving average of a model's parameters: each rank keeps that of what it owns and updates.
/// For an evaluation or a file it changes places with the masters, and back.
///
/// Holds   4 bytes an element that this rank owns            test: ParamAverage.HoldsWhatIsPlanned
/// Moves   zero1, zero2: a publish of all parameters at each change of places
/// Order   element by element: the same bits on any layout   test: ParamAverage.HasTheBitsOfOneRank
/// Source  docs/concepts/optimizers.md
#pragma once

#include <vector>

#include "lockstep/memory/account.h"
#include "lockstep/train/model_state.h"

namespace lockstep {

class ParamAverage {
 public:
  /// Begins with the parameters as they are. `state` must outlive this; its parameters are in
  /// memory.
  ParamAverage(ModelState& state, double decay);

  /// The parameters took a step.
  void update();
  /// Parameters and average change places. All ranks call it, outside of any step.
  void swap();

  /// Of all pieces that this rank owns, back to back.
  const std::vector<float>& values() const { return values_; }
  std::vector<float>& values() { return values_; }

 private:
  ModelState& state_;
  double decay_;
  memory::Counted counted_;
  std::vector<float> values_;
};

}  // namespace lockstep
