/// A training run of one rank: the order in which its parts are built, and the loop.
///
/// model without start values -> ModelState (model_state.h) -> loop. Every part is a function of
/// the config and this rank's place; nothing numeric depends on the number of ranks.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/rank_context.h"
#include "lockstep/memory/account.h"
#include "lockstep/memory/activation_store.h"
#include "lockstep/optim/schedule.h"
#include "lockstep/plan/batch_ramp.h"
#include "lockstep/plan/numeric_identity.h"
#include "lockstep/plan/run_layout.h"
#include "lockstep/plan/train_config.h"
#include "lockstep/torch_inside/layer_profile.h"
#include "lockstep/train/checkpointer.h"
#include "lockstep/train/evaluation.h"
#include "lockstep/train/model_state.h"
#include "lockstep/train/noise_scale.h"
#include "lockstep/train/param_average.h"
#include "lockstep/train/run_log.h"
#include "lockstep/train/run_summary.h"
#include "lockstep/train/state_copy.h"
#include "lockstep/train/step_guard.h"
#include "lockstep/train/task.h"
#include "lockstep/train/timeline.h"
#include "lockstep/train/witness_recorder.h"

namespace lockstep {

struct TrainerOptions {
  plan::TrainConfig config;
  std::string run_folder;
  int console_fd = 2;
  /// Set from outside to end the run after the step at hand, on all ranks together.
  const std::atomic<bool>* stop_requested = nullptr;
  /// Requests to save and go on, so far: a new one makes a checkpoint when the step at hand is
  /// done.
  const std::atomic<int>* save_requests = nullptr;
  /// Where each rank writes what it computed in each step (train/witness_recorder.h); empty:
  /// nowhere.
  std::string witness_folder = {};
  int64_t witness_from = 0;  // from the step after this many on
  /// Families of the program's own, beside Lockstep's.
  TaskFactories tasks = {};
  /// A checkpoint to go on from; empty: the run begins at its first step.
  std::string resume_from = {};
  /// Where this many steps are done, the run stops as on request; -1: at the last one. For replays.
  int64_t stop_after = -1;
};

struct TrainResult {
  bool stopped = false;  // on request, before the last step
  std::string summary;   // the JSON object of `--json` (rank 0; empty elsewhere)
};

class Trainer {
 public:
  Trainer(const TrainerOptions& options, net::Endpoint& endpoint);
  ~Trainer();

  /// Trains to the last step, evaluates, and saves final.safetensors and summary.json (rank 0);
  /// checkpoints as config.checkpoint says, on request, and where it stops before the last step.
  /// Throws TrainingError when the loss is no number; StateError when a checkpoint could not be
  /// saved, after what else can be saved was.
  TrainResult run();

  ModelState& state() { return *state_; }
  state::ParamStore& params() { return state_->params(); }
  const StepRunner& runner() const { return state_->runner(); }
  /// Of a pipeline: micro-batches of a chunk between forward and the end of backward, at most.
  int most_in_flight() const {
    return state_->flow() != nullptr ? state_->flow()->most_in_flight() : 0;
  }
  const plan::StepInputs& step_inputs() const { return state_->inputs(); }
  /// Steps that were done before this run began: those of the checkpoint that it goes on from.
  int64_t first_step() const { return first_step_; }

 private:
  TrainResult train_to_the_end();
  void train_step(int64_t step);
  void begin_stage(const plan::BatchRamp::Stage& stage, int64_t step);
  plan::StepInputs inputs_of(const plan::BatchPlan& batch) const;
  StepCompute compute_of(int64_t step, double lr, Verdict& verdict);
  void carry_out(Verdict verdict, int64_t step);
  bool evaluation_due(int64_t done) const;  // before the last step
  bool lacks_evaluation();
  /// False: it was stopped on request.
  bool evaluate_at(int64_t done);
  std::optional<EvaluationResult> evaluate();
  void swap_average();
  void save_average(int64_t steps_done);
  int64_t step_terms() const;  // numbers that the loss of the step at hand is a sum of
  std::string why_stopped(int64_t step) const;
  void choose_algorithm(plan::StepInputs& inputs);
  void make_state(plan::StepInputs inputs);
  void limit_memory();
  void offload_activations();
  void open_log();
  void require_equal_replicas();
  std::function<void(const std::function<void()>&)> run_forward();
  bool has_losses(const plan::StepInputs& inputs) const;
  std::function<at::Tensor(const EvaluationOptions::RunChunk&)> stage_pass();
  GroupTotals traffic() const;
  plan::GroupBytes planned_traffic(int64_t steps_done) const;
  std::vector<GroupTraffic> group_traffic(int64_t steps_done) const;
  bool stop_agreed();
  /// What any rank was asked for, or still has to do; the same on all of them.
  struct Requests {
    bool stop = false;
    int saves = 0;
    bool saving = false;  // a part of a checkpoint is still being written
  };
  Requests agree_on_requests();
  void name_slow_rank();
  void save(int64_t steps_done, const std::string& file, const std::string& digest);
  // trainer_checkpoint.cpp
  void make_checkpointer();
  void resume();
  void checkpoint_if_due(int64_t steps_done, const Requests& requests);
  void save_checkpoint(int64_t steps_done);
  void finish_checkpoints();
  void with_checkpoints(const std::function<void()>& work);
  void say_what_was_saved();
  nlohmann::json run_state(int64_t steps_done) const;
  std::string summarize(int64_t steps_done, bool stopped);
  StepReport report_of(int64_t step, double seconds, double lr);
  /// Throws StateError if metrics.jsonl ends early.
  void require_log() const;
  void report_profile();
  void report_timeline();

  TrainerOptions options_;
  const plan::TrainConfig& config_;
  net::Endpoint& endpoint_;
  memory::Account& account_;  // of this rank's bytes
  RankContext context_;
  plan::RankPlace place_;
  std::shared_ptr<Task> task_;
  std::unique_ptr<ModelState> state_;
  std::unique_ptr<Timeline> timeline_;
  std::unique_ptr<WitnessRecorder> witness_;
  std::unique_ptr<memory::ActivationStore> activations_;  // where they are offloaded
  plan::NumericIdentity identity_;
  plan::BatchRamp ramp_;
  StepGuard guard_;
  std::unique_ptr<ParamAverage> average_;  // if asked for
  std::unique_ptr<StateCopy> copy_;        // if something goes back to it
  std::unique_ptr<NoiseScale> noise_;      // if asked for
  std::unique_ptr<Checkpointer> checkpointer_;
  optim::Schedule schedule_;
  std::string digest_;                                   // of the parameters after the last step
  std::unique_ptr<RunLog> log_;                          // rank 0
  std::unique_ptr<torch_inside::LayerProfile> profile_;  // rank 0, if asked for

  double gemm_peak_ = 0;       // flop/s of all ranks
  double flops_per_term_ = 0;  // of the model, forward and backward
  int64_t gemm_flops_at_start_ = 0;
  int64_t samples_ = 0;  // computed by this rank
  StepResult last_;
  double val_loss_ = std::nan("");  // null in JSON until evaluated
  double val_loss_average_ = std::nan("");
  double val_accuracy_ = std::nan("");  // of a task that has it
  std::string average_digest_;
  int saves_answered_ = 0;
  int64_t first_step_ = 0;
  std::vector<std::string> set_aside_;  // checkpoints of later steps, which it has left
  int64_t skipped_before_ = 0;          // in the steps before
  std::optional<ResumedFrom> resumed_;  // where there were any
  std::vector<int64_t> saved_steps_;    // of checkpoints, in the order of their saves
  int64_t saves_said_ = 0;
  double checkpoint_pause_seconds_ = 0;  // of all saves
  std::string checkpoint_failure_;       // of the first save that failed
  GroupTotals comm_before_;              // of all groups, before the step at hand
  std::vector<double> step_seconds_;
  double own_seconds_ = 0;  // of the steps since ranks were compared, without waiting for peers
  int64_t own_steps_ = 0;
  int64_t forwards_ = 0;  // of evaluations that gathered
  /// Moved by evaluations and for saving: not a part of steps.
  plan::GroupBytes outside_;
  plan::GroupBytes moved() const;
  void count_outside(const plan::GroupBytes& before);
  int slow_rank_ = -1;  // that was named last, and has not caught up since; -1: none
};

}  // namespace lockstep
