// A step of a Trainer: how large it is, what it computes, and whether it is taken.
#include <chrono>
#include <cmath>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/planted_fault.h"
#include "lockstep/base/str.h"
#include "lockstep/optim/clip.h"
#include "lockstep/plan/run_layout.h"
#include "lockstep/train/detail/warmup.h"
#include "lockstep/train/not_finite.h"
#include "lockstep/train/trainer.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

plan::StepInputs Trainer::inputs_of(const plan::BatchPlan& batch) const {
  plan::StepInputs inputs = state_->inputs();
  inputs.batch = batch;
  inputs.schedules.clear();
  plan::set_pipeline(inputs, config_, place_.stage);
  return inputs;
}

/// From here on, `step` first, steps have this size.
void Trainer::begin_stage(const plan::BatchRamp::Stage& stage, int64_t step) {
  if (stage.batch != state_->inputs().batch) state_->set_step(inputs_of(stage.batch));
  const plan::StepInputs& inputs = state_->inputs();
  task_->start(inputs.batch,
               inputs.leaves.rounds_of(context_.dp->rank(), inputs.batch.micro_batches_per_grain),
               step, ramp_.end_of(stage, config_.run.steps), ramp_.samples_before(step));
}

void Trainer::train_step(int64_t step) {
  const auto start = Clock::now();
  context_.step = step;
  comm_before_ = traffic();
  const bool first = step == first_step_;
  if (first || ramp_.begins(step)) begin_stage(ramp_.at(step), step);
  if (copy_ && (first || step % config_.run.rewind_every == 0)) {
    copy_->keep(step);
    guard_.copied();
  }
  PhaseClock& clock = state_->runner().clock();
  clock.start();
  const bool profiled = profile_ && step - first_step_ >= detail::warmup_of_throughput(
                                                              config_.run.steps - first_step_);
  if (profiled) profile_->begin_step();
  {
    const PhaseSpan span(clock, torch_inside::Phase::data);
    task_->next_step();
  }
  const double lr = optim::learning_rate(schedule_, step);
  const double scale = guard_.loss_scale();
  Verdict verdict = Verdict::stop;
  // The one place that divides: the loss is a sum over terms, and each weighs alike.
  last_ = state_->runner().run(compute_of(step, lr, verdict),
                               scale / static_cast<double>(step_terms()));
  if (noise_) noise_->end_step(last_.grad_norm, scale, verdict == Verdict::take);
  last_.grad_norm /= scale;
  if (verdict == Verdict::take) task_->end_step(context_);
  if (profiled) profile_->end_step();
  timeline_->add(step + 1, state_->runner().timed());
  if (witness_) witness_->write(step, last_.loss_sum, last_.grad_norm);
  step_seconds_.push_back(seconds_since(start));
  own_seconds_ += step_seconds_.back() - (traffic().exposed_seconds - comm_before_.exposed_seconds);
  ++own_steps_;
  carry_out(verdict, step);
  const int64_t digests = config_.log.digest_every;
  const std::string digest = digests > 0 && (step + 1) % digests == 0 ? state_->digest() : "";
  if (log_) {
    StepReport report = report_of(step, step_seconds_.back(), lr);
    report.param_digest = digest;
    log_->step(report);
  }
  if (config_.log.every > 0 && (step + 1) % config_.log.every == 0) name_slow_rank();
}

/// `verdict` outlives what is returned.
StepCompute Trainer::compute_of(int64_t step, double lr, Verdict& verdict) {
  StepCompute compute;
  compute.entering = [this, step](const plan::Step& op) {
    endpoint_.set_status(step + 1, plan::text(op).c_str());
  };
  const int64_t first_sample = ramp_.samples_before(step);
  compute.forward = [this, first_sample](const plan::Step& op, const at::Tensor& input) {
    const plan::SampleRange samples = state_->inputs().batch.samples(op.leaf, op.micro);
    context_.leaf = op.leaf;
    context_.micro = op.micro;
    context_.first_sample = samples.lo;
    if (op.chunk == 0) samples_ += samples.size();
    std::optional<memory::ActivationOffloadScope> offloads;
    if (activations_) offloads.emplace(*activations_);
    Samples wanted{
        .first = first_sample + samples.lo, .count = samples.size(), .round = {op.leaf, op.micro}};
    if (base::planted(base::Fault::wrong_samples)) {
      wanted.round = {state_->inputs().leaves.leaves_of(context_.dp->rank()).front(), 0};
    }
    return state_->flow() != nullptr ? task_->run_chunk(op.chunk, input, wanted, context_)
                                     : task_->losses(wanted, context_);
  };
  const precision::LossScaler scaler = guard_.scaler();  // of this step
  // Unscales and clips at once: the limit is one of the gradients' own norm.
  const auto factor = [scaler, limit = config_.optim.grad_clip](double norm) {
    return optim::clip_scale(scaler.unscaled(norm), limit) / scaler.scale();
  };
  compute.take = [this, scaler, &verdict](const StepResult& result) {
    verdict = guard_.judge(result.loss_sum / static_cast<double>(step_terms()),
                           scaler.unscaled(result.grad_norm));
    return verdict == Verdict::take;
  };
  compute.ratios = [this, factor](double norm) { state_->measure(factor(norm)); };
  compute.update = [this, lr, factor](double norm) {
    state_->update(lr, factor(norm));
    if (average_) average_->update();
  };
  return compute;
}

/// What is left to do about a step that was not taken.
void Trainer::carry_out(Verdict verdict, int64_t step) {
  if (verdict == Verdict::take) return;
  if (verdict == Verdict::stop) throw TrainingError(why_stopped(step));
  std::string what = "left out";
  if (verdict == Verdict::rewind) {
    const plan::GroupBytes before = moved();
    copy_->bring_back();
    count_outside(before);
    what = base::str("back to the state after step ", copy_->steps_done(),
                     ", and on with the samples behind it");
  }
  if (log_) log_->say(base::str("step ", step + 1, ": ", guard_.reason(), ": ", what));
}

int64_t Trainer::step_terms() const {
  return state_->inputs().batch.global_batch * task_->terms_per_sample();
}

std::string Trainer::why_stopped(int64_t step) const {
  const bool finite = std::isfinite(last_.loss_sum) && std::isfinite(last_.grad_norm);
  const std::string cause = finite ? guard_.reason()
                                   : describe_not_finite(*context_.peers, state_->inputs().batch,
                                                         state_->runner().leaf_losses(),
                                                         state_->params(), state_->grads());
  const bool policy = config_.run.on_nan != "stop" || config_.run.on_spike != "none";
  return base::str("[rank ", context_.world->rank(), " of ", context_.world->size(), "] step ",
                   step + 1, ": loss ", last_.loss_sum / static_cast<double>(step_terms()),
                   // The sign of a NaN says nothing.
                   ", gradient norm ", std::abs(last_.grad_norm), ": ", cause,
                   policy && !finite ? base::str(" (", guard_.reason(), ")") : std::string(),
                   ".\n  A lower --set optim.lr or a longer --set optim.warmup_steps often helps",
                   config_.precision.compute == "fp16"
                       ? base::str("; in fp16 a smaller --set precision.loss_scale (now ",
                                   guard_.scaler().scale(), "), or compute=bf16.")
                       : std::string("."));
}

}  // namespace lockstep
