/// Writes down what a rank computed in each step, for `lockstep verify` to compare with a run
/// alone: digests of activations and of leaf gradients, sums of gradients, moments, parameters.
#pragma once

#include <string>

#include "lockstep/files/witness_file.h"
#include "lockstep/train/model_state.h"

namespace lockstep {

class WitnessRecorder {
 public:
  /// Watches `state` and `context`, which must outlive it, from step `from` on (from 0).
  /// `speaks`: this rank speaks for activations that all ranks of its tensor group have.
  WitnessRecorder(std::string folder, int64_t from, ModelState& state, RankContext& context,
                  bool speaks);
  ~WitnessRecorder();

  /// After a step that is watched: what it was is written to the folder.
  void write(int64_t step, double loss, double grad_norm);

 private:
  void see_leaf(int param, int leaf, const float* values);
  void see_activation(std::string_view layer, const at::Tensor& x);

  bool watches() const { return context_.step >= from_; }

  std::string folder_;
  int64_t from_;
  ModelState& state_;
  RankContext& context_;
  bool speaks_;
  int listener_ = 0;  // of gradients
  files::StepWitness witness_;
};

}  // namespace lockstep
