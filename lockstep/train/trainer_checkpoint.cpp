// A Trainer's checkpoints: when they are made, what they hold beside values, how a run goes on.
#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/number_text.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/plan/resume_rules.h"
#include "lockstep/train/checkpoint_load.h"
#include "lockstep/train/trainer.h"

namespace lockstep {

void Trainer::make_checkpointer() {
  checkpointer_ = std::make_unique<Checkpointer>(
      CheckpointerOptions{
          .async = config_.checkpoint.async,
          .timeout_s = std::max(600.0, config_.comm.timeout_s),
          .completed = [folder = options_.run_folder, keep = config_.checkpoint.keep,
                        keep_every = config_.checkpoint.keep_every](
                           const std::string&) { checkpoints::prune(folder, keep, keep_every); },
          .before_write = {}},
      *state_, average_.get(), context_);
  if (config_.checkpoint.every > 0) checkpointer_->reserve();
}

/// Everything but the values: what makes the steps from here on those of the unbroken run.
nlohmann::json Trainer::run_state(int64_t steps_done) const {
  return {{"optimizer_steps", state_->optimizer().steps_taken()},
          {"guard", guard_.state()},
          {"loss_sum", last_.loss_sum},  // of the last step, for the summary
          {"grad_norm", last_.grad_norm},
          {"cursor", task_->cursor(ramp_.samples_before(steps_done))}};
}

void Trainer::resume() {
  const checkpoints::Manifest manifest = checkpoints::read_manifest(options_.resume_from);
  plan::check_identity(manifest.identity, identity_.text(), config_);
  const LoadedCheckpoint loaded = [this] {
    try {
      return load_checkpoint(options_.resume_from, *state_, average_.get(), context_);
    } catch (const StateError& error) {
      const auto found = checkpoints::complete_checkpoints(options_.run_folder);
      throw StateError(error.what() + checkpoints::hint_at_older(found, 0));
    }
  }();
  try {
    task_->require_cursor(manifest.state.at("cursor"));
    guard_.restore(manifest.state.at("guard"));
    state_->optimizer().set_steps_taken(manifest.state.at("optimizer_steps").get<int64_t>());
    last_.loss_sum = manifest.state.at("loss_sum").get<double>();
    last_.grad_norm = manifest.state.at("grad_norm").get<double>();
  } catch (const nlohmann::json::exception& error) {
    throw StateError(base::str(options_.resume_from,
                               ": what it says of the run cannot be read: ", error.what(), "."));
  }
  first_step_ = manifest.step;
  if (first_step_ > config_.run.steps) {
    throw UsageError(base::str("run.steps = ", config_.run.steps, ", but ", options_.resume_from,
                               " is of a run that has made ", first_step_, " steps."));
  }
  // An older run's: where it fell back past newer ones, they are of steps that are made again.
  if (context_.world->rank() == 0) {
    set_aside_ = checkpoints::set_aside(options_.run_folder, first_step_);
  }
  skipped_before_ = guard_.skipped();
  resumed_ = ResumedFrom{.folder = options_.resume_from,
                         .step = first_step_,
                         .bytes_read = loaded.bytes_read,
                         .seconds = loaded.seconds};
}

/// The first save that fails ends the run after the step at hand: what it has is saved as the model
/// alone, and the error is the run's.
void Trainer::with_checkpoints(const std::function<void()>& work) {
  if (!checkpoint_failure_.empty()) return;
  try {
    work();
  } catch (const StateError& error) {
    checkpoint_failure_ = error.what();
    if (log_) log_->say(checkpoint_failure_);
  }
}

void Trainer::checkpoint_if_due(int64_t steps_done, const Requests& requests) {
  if (checkpointer_->pending() && !requests.saving) {
    with_checkpoints([this] { checkpointer_->advance(); });
    say_what_was_saved();
  }
  const bool asked = requests.saves > saves_answered_;
  saves_answered_ = requests.saves;
  const bool last = steps_done == config_.run.steps;
  const bool due =
      config_.checkpoint.every > 0 && (last || steps_done % config_.checkpoint.every == 0);
  if (asked || due) save_checkpoint(steps_done);
}

void Trainer::save_checkpoint(int64_t steps_done) {
  if (!saved_steps_.empty() && saved_steps_.back() == steps_done) return;
  endpoint_.set_status(steps_done, "checkpoint");
  const std::string folder =
      checkpoints::checkpoints_of(options_.run_folder) + "/" + checkpoints::folder_name(steps_done);
  with_checkpoints([&] {
    checkpointer_->save(folder, {.step = steps_done,
                                 .config = config_,
                                 .vocab = task_->vocab(),
                                 .identity = identity_.text(),
                                 .state = run_state(steps_done),
                                 .rank_state = {}});
    saved_steps_.push_back(steps_done);
    checkpoint_pause_seconds_ += checkpointer_->times().pause_seconds;
  });
  say_what_was_saved();
}

void Trainer::finish_checkpoints() {
  if (checkpoint_failure_.empty()) {
    with_checkpoints([this] { checkpointer_->finish(); });
    say_what_was_saved();
  }
  if (checkpoint_failure_.empty()) return;
  // Whichever rank's error is told, it says what there is to go on from.
  std::string left;
  if (log_) {
    const auto whole = checkpoints::complete_checkpoints(options_.run_folder);
    left = whole.empty() ? "\n  No checkpoint of this run is complete."
                         : base::str("\n  The newest complete one is ", whole.front().folder, ".");
  }
  checkpoint_failure_ += context_.world->gather_text(left)[0];
}

void Trainer::say_what_was_saved() {
  const SaveTimes& times = checkpointer_->times();
  if (!log_ || times.saves == saves_said_) return;
  saves_said_ = times.saves;
  const int64_t step = saved_steps_[static_cast<size_t>(saves_said_ - 1)];
  log_->say(base::str(
      "checkpoint of step ", step, " in ", checkpoints::checkpoints_of(options_.run_folder), "/",
      checkpoints::folder_name(step), ": ", base::with_commas(times.bytes),
      " bytes of rank 0, training paused for ", base::fixed_text(times.pause_seconds * 1e3, 1),
      " ms, written in ", base::fixed_text(times.write_seconds, 2), " s"));
}

}  // namespace lockstep
