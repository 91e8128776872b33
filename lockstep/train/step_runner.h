/// The one executor of a StepProgram, and the only caller of backward. It has no policy: what is
/// done in which order is the program's.
///
/// While a forward or a backward runs, the operations that follow it in the program are started as
/// soon as they can be: gathers when the computation comes to a unit, folds and reductions when
/// their gradients are complete. Each of the two lanes keeps the program's order, so all ranks
/// issue the same collectives in the same order.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/plan/step_program.h"
#include "lockstep/state/grad_store.h"
#include "lockstep/train/detail/shard_norm.h"
#include "lockstep/train/detail/stage_flow.h"
#include "lockstep/train/model_parts.h"
#include "lockstep/train/phase_clock.h"

namespace lockstep {

struct StepResult {
  double loss_sum = 0;   // over all tokens of the step, all ranks
  double grad_norm = 0;  // of the gradients as they are: times the loss scale, where there is one
};

/// What the program's compute operations do; given by whoever knows the model and the data.
struct StepCompute {
  /// The loss of each token of a micro-batch, with its graph; of several context grains, those of
  /// one after the other. Of a pipeline: the result of
  /// `step.chunk` for `input`, which is what the chunk before gave; undefined for the model's
  /// first.
  std::function<at::Tensor(const plan::Step& step, const at::Tensor& input)> forward;
  /// Asked once the gradients of the step are whole, by all ranks alike: false leaves the step out,
  /// and neither of the next two is called. Not set: steps with a finite norm are taken.
  std::function<bool(const StepResult& result)> take;
  /// The optimizer, with the gradients' norm. `ratios` comes before it, where the optimizer has
  /// trust ratios.
  std::function<void(double grad_norm)> ratios;
  std::function<void(double grad_norm)> update;
  /// Told before each operation, for status and trace.
  std::function<void(const plan::Step& step)> entering;
};

/// An operation of a run and when it ran: seconds of the steady clock.
struct TimedStep {
  plan::Step step;
  double start = 0;
  double seconds = 0;
};

/// With whom a rank takes its steps.
struct StepGroups {
  ProcessGroup& dp;               // the ranks of the step's leaves
  ProcessGroup* shard = nullptr;  // those that divide a replica
  /// Of a model that ranks hold parts of: who together hold a replica, and what each holds; all
  /// ranks, and whether this one has losses that count. Else null: the two above.
  ProcessGroup* model = nullptr;
  const ModelParts* parts = nullptr;
  ProcessGroup* all = nullptr;
  bool has_losses = true;
  detail::StageFlow* flow = nullptr;  // of a pipeline
};

class StepRunner {
 public:
  StepRunner(const plan::StepInputs& inputs, state::ParamStore& params, state::GradStore& grads,
             const StepGroups& groups);
  ~StepRunner();

  /// One optimizer step. `seed` is what each token's loss weighs: loss scale / tokens of the step.
  StepResult run(const StepCompute& compute, double seed);

  /// `run` without its end: all micro-batches of the step; then, when the caller likes, finish.
  void compute(const StepCompute& compute, double seed);

  /// The same in a loop of the caller's: begin; then, as long as next_forward gives a round, its
  /// forward and `backward` of its losses; then finish.
  void begin();
  /// Goes on to this rank's next micro-batch; nothing: there is none left in this step.
  std::optional<plan::Round> next_forward();
  void backward(const at::Tensor& losses, double seed);
  StepResult finish(const StepCompute& compute);

  /// A forward without backward, outside of any step; empty on a rank that has nothing to compute.
  /// All ranks that divide a replica call it together: it gathers. Of a stage: what it does for
  /// one micro-batch.
  void run_forward(const std::function<void()>& forward);

  /// Cuts the time of a step into its parts: whoever times steps starts it, and reads it after
  /// run().
  PhaseClock& clock() { return clock_; }

  /// Of the last run, by leaf of the sums; 0 for leaves of other ranks.
  const std::vector<double>& leaf_losses() const { return leaf_losses_; }

  /// The operations of the last run, in the order in which they were started.
  const std::vector<plan::Step>& executed() const { return executed_; }
  /// The same with their times; of reductions and gathers, those of their start.
  const std::vector<TimedStep>& timed() const { return timed_; }

 private:
  /// Operations that keep their order among themselves.
  enum class Lane { none, units, gradients };
  static Lane lane_of(plan::StepOp op);

  void enter(const plan::Step& step);
  size_t last_backward() const;
  void run_stage_forward(const std::function<void()>& forward);
  void run_stage(const StepCompute& compute, double seed);
  void run_stage_step(const plan::Step& step, const StepCompute& compute, double seed);
  void begin_window();
  void end_window();
  void advance_gradients();
  void advance_units(int touched);
  void execute(const plan::Step& step);
  bool is_ready(const plan::Step& step) const;
  void await_reductions();
  void add_losses(int leaf, const at::Tensor& losses);
  double exchange_losses();
  double gradient_norm();

  struct Program {
    std::vector<plan::Step> steps;
    std::vector<bool> done;  // by place: it was started before its turn
  };

  Program step_;
  Program forward_;            // of run_forward
  Program* program_ = &step_;  // at work
  plan::LeafSchedule leaves_;
  plan::LeafRange contexts_;
  std::vector<plan::LeafRange> loss_terms_;
  state::ParamStore& params_;
  state::GradStore& grads_;
  StepGroups groups_;
  detail::ShardNorm norm_;

  std::function<void(const plan::Step&)> entering_;
  std::optional<PhaseSpan> forward_span_;  // between next_forward and backward
  size_t forward_place_ = 0;               // in timed_, of the same
  size_t cursor_ = 0;                      // behind the forward or backward under way
  size_t window_end_ = 0;                  // the operations up to here belong to it
  std::vector<bool> bucket_ready_;         // for the leaf at hand
  std::vector<double> leaf_losses_;        // by leaf of the sums; ours only
  std::vector<Work> reductions_;
  std::vector<plan::Step> executed_;
  std::vector<TimedStep> timed_;
  PhaseClock clock_;
};

}  // namespace lockstep
