/// The one executor of a StepProgram, and the only caller of backward. It has no policy: what is
/// done in which order is the program's.
///
/// While a backward runs, gradients become complete; the operations that follow it in the program
/// (folds, reductions) start as soon as theirs are, in the program's order. With the order fixed,
/// all ranks issue the same collectives in the same order.
#pragma once

#include <functional>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/plan/norm_chunks.h"
#include "lockstep/plan/step_program.h"
#include "lockstep/state/grad_store.h"
#include "lockstep/train/phase_clock.h"

namespace lockstep {

/// What the program's compute operations do; given by whoever knows the model and the data.
struct StepCompute {
  /// The loss of each token of a micro-batch, with its graph.
  std::function<at::Tensor(int leaf, int micro)> forward;
  /// The optimizer: called once the gradients of the step are whole, with their norm.
  std::function<void(double grad_norm)> update;
  /// Told before each operation, for status and trace.
  std::function<void(const plan::Step& step)> entering;
};

struct StepResult {
  double loss_sum = 0;  // over all tokens of the step, all ranks
  double grad_norm = 0;
};

class StepRunner {
 public:
  /// `group` is the one that `grads` reduces over.
  StepRunner(plan::StepProgram program, plan::BatchPlan batch, state::ParamStore& params,
             state::GradStore& grads, ProcessGroup& group);

  /// One optimizer step. `seed` is what each token's loss weighs: loss_scale / tokens of the step.
  StepResult run(const StepCompute& compute, double seed);

  /// Cuts the time of a step into its parts: whoever times steps starts it, and reads it after run().
  PhaseClock& clock() { return clock_; }

  /// Of the last run, by leaf; 0 for leaves of other ranks.
  const std::vector<double>& leaf_losses() const { return leaf_losses_; }

  /// The operations of the last run, in the order in which they were started.
  const std::vector<plan::Step>& executed() const { return executed_; }

 private:
  void advance();
  void execute_communication(const plan::Step& step);
  void await_reductions();
  double exchange_losses();
  double gradient_norm();

  plan::StepProgram program_;
  plan::BatchPlan batch_;
  state::ParamStore& params_;
  state::GradStore& grads_;
  ProcessGroup& group_;
  plan::NormChunks chunks_;

  const StepCompute* compute_ = nullptr;  // during a run
  size_t cursor_ = 0;                     // next operation of the program
  std::vector<bool> bucket_ready_;        // for the leaf at hand
  std::vector<double> leaf_losses_;       // by leaf; ours only
  std::vector<Work> reductions_;
  std::vector<double> chunk_sums_;
  std::vector<plan::Step> executed_;
  PhaseClock clock_;
};

}  // namespace lockstep
