// What a Trainer tells of its run: the log, a step's report, the slow rank, the summary.
#include <algorithm>
#include <array>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/number_text.h"
#include "lockstep/base/str.h"
#include "lockstep/plan/fitting.h"
#include "lockstep/torch_inside/gemm_counter.h"
#include "lockstep/train/data_groups.h"
#include "lockstep/train/detail/warmup.h"
#include "lockstep/train/profile_report.h"
#include "lockstep/train/run_summary.h"
#include "lockstep/train/slow_rank.h"
#include "lockstep/train/trainer.h"

namespace lockstep {
namespace {

/// Of the steps that count, samples a second.
double throughput(const std::vector<double>& step_seconds, int64_t first,
                  const plan::BatchRamp& ramp) {
  const auto steps = static_cast<int64_t>(step_seconds.size());
  const int64_t skipped = detail::warmup_of_throughput(steps);
  const double seconds = std::accumulate(step_seconds.begin() + skipped, step_seconds.end(), 0.0);
  const int64_t samples = ramp.samples_before(first + steps) - ramp.samples_before(first + skipped);
  return seconds > 0 ? static_cast<double>(samples) / seconds : 0;
}

constexpr std::array kGroups = {&plan::GroupBytes::dp,     &plan::GroupBytes::shard,
                                &plan::GroupBytes::gather, &plan::GroupBytes::replica,
                                &plan::GroupBytes::tp,     &plan::GroupBytes::cp,
                                &plan::GroupBytes::pp,     &plan::GroupBytes::tie,
                                &plan::GroupBytes::model,  &plan::GroupBytes::all};

}  // namespace

void Trainer::open_log() {
  const int ranks = context_.world->size();
  const ModelParts* const parts = state_->parts();
  const size_t buckets = state_->inputs().buckets.buckets.size();
  log_ = std::make_unique<RunLog>(RunLogOptions{.folder = options_.run_folder,
                                                .console_fd = options_.console_fd,
                                                .steps = config_.run.steps,
                                                .steps_before = first_step_,
                                                .every = config_.log.every,
                                                .tensorboard = config_.log.tensorboard,
                                                .http = config_.log.http,
                                                .ranks = ranks,
                                                .engine = config_.comm.engine,
                                                .unit = task_->unit()});
  log_->say(base::str(
      config_.model.family, ", ",
      base::with_commas(parts != nullptr ? parts->whole.numel() : state_->params().table().numel()),
      " parameters | ", ranks, ranks == 1 ? " rank" : " ranks", " over ", config_.comm.engine,
      " | ", buckets, buckets == 1 ? " bucket" : " buckets", " | identity ", identity_.text()));
  log_->say(base::str("matrix products run at ", base::fixed_text(gemm_peak_ / ranks / 1e9, 1),
                      " GFLOP/s a rank here: 100 % MFU"));
  for (const std::string& folder : set_aside_) {
    log_->say(base::str("steps behind ", first_step_, " are made again: what was saved of them is ",
                        folder));
  }
  if (const std::string text = state_->offload_text(); !text.empty()) {
    log_->say(base::str("each rank offloads to ", text));
  }
  if (config_.log.profile) {
    profile_ = std::make_unique<torch_inside::LayerProfile>(task_->module());
  }
}

/// On all ranks together. Said when it becomes slow, and when it no longer is.
void Trainer::name_slow_rank() {
  const int ranks = context_.world->size();
  at::Tensor own = at::zeros({ranks}, at::kDouble);
  own[context_.world->rank()] = own_seconds_;
  context_.world->all_reduce(own).wait();
  const double* seconds = own.data_ptr<double>();
  const std::optional<SlowRank> slow = find_slow_rank({seconds, seconds + ranks});
  const int now = slow ? slow->rank : -1;
  if (log_ && now != slow_rank_) {
    if (slow_rank_ >= 0) log_->say(base::str("rank ", slow_rank_, " keeps up again"));
    if (slow) log_->say(describe(*slow, own_steps_));
  }
  slow_rank_ = now;
  own_seconds_ = 0;
  own_steps_ = 0;
}

StepReport Trainer::report_of(int64_t step, double seconds, double lr) {
  const int64_t tokens = step_terms();
  const GroupTotals now = traffic();
  const double rate = static_cast<double>(tokens) / seconds;
  return {.step = step + 1,
          .epoch = static_cast<int64_t>(task_->epochs(ramp_.samples_before(step))) + 1,
          .loss = last_.loss_sum / static_cast<double>(tokens),
          .grad_norm = last_.grad_norm,
          .lr = lr,
          .seconds = seconds,
          .tokens = tokens,
          .tokens_per_second = rate,
          .mfu = flops_per_term_ * rate / gemm_peak_,
          .memory = account_.current(),
          .comm_bytes = now.bytes - comm_before_.bytes,
          .comm_seconds = now.seconds - comm_before_.seconds,
          .comm_wait_seconds = now.exposed_seconds - comm_before_.exposed_seconds,
          .phases = state_->runner().clock().read(),
          .loss_scale = guard_.loss_scale(),
          .skipped = guard_.skipped(),
          .noise_scale = noise_ ? noise_->samples() : std::nan("")};
}

/// Of all groups that steps communicate in.
GroupTotals Trainer::traffic() const {
  GroupTotals sum;
  for (const ProcessGroup* group : groups_of(context_)) {
    const GroupTotals of = group->totals();
    sum.bytes += of.bytes;
    sum.seconds += of.seconds;
    sum.exposed_seconds += of.exposed_seconds;
  }
  if (state_->messages() != nullptr) {
    const GroupTotals of = state_->messages()->totals();
    sum.bytes += of.bytes;
    sum.seconds += of.seconds;
    sum.exposed_seconds += of.exposed_seconds;
  }
  return sum;
}

/// What this rank's groups move in the steps done, by the plan.
plan::GroupBytes Trainer::planned_traffic(int64_t steps_done) const {
  plan::GroupBytes planned;
  const auto add = [&](const plan::StepInputs& inputs, int64_t steps) {
    const plan::GroupBytes of_step = plan::planned_bytes(inputs, context_.dp->rank());
    for (const auto group : kGroups) planned.*group += of_step.*group * steps;
  };
  for (const plan::BatchRamp::Stage& stage : ramp_.stages) {
    const int64_t steps = ramp_.end_of(stage, steps_done) - std::max(stage.first_step, first_step_);
    if (steps > 0) add(inputs_of(stage.batch), steps);
  }
  const int64_t skipped = guard_.skipped() - skipped_before_;
  if (skipped > 0 && plan::traits_of(state_->inputs().optimizer).has_ratios) {
    // A step that is left out has no ratios.
    plan::StepInputs without = state_->inputs();
    add(without, -skipped);
    without.optimizer = plan::Optimizer::adamw;
    add(without, skipped);
  }
  return planned;
}

std::vector<GroupTraffic> Trainer::group_traffic(int64_t steps_done) const {
  const plan::GroupBytes planned = planned_traffic(steps_done);
  std::vector<GroupTraffic> groups;
  if (state_->messages() != nullptr) {
    GroupTotals totals = state_->messages()->totals();
    totals.bytes -= outside_.pp;
    groups.push_back({.name = "pp", .totals = totals, .planned_bytes = planned.pp});
  }
  for (const ProcessGroup* group : groups_of(context_)) {
    groups.push_back({.name = group->name(),
                      .totals = group->totals(),
                      .planned_bytes = planned.of(group->name())});
    if (group == context_.tp.get()) groups.back().totals.bytes -= outside_.tp;
    if (group == context_.cp.get()) groups.back().totals.bytes -= outside_.cp;
    if (group == context_.model.get()) groups.back().totals.bytes -= outside_.model;
    if (group == context_.gather.get()) {
      groups.back().planned_bytes +=
          plan::forward_bytes(state_->inputs(), context_.dp->rank()) * forwards_;
      groups.back().totals.bytes -= outside_.gather;
    }
  }
  return groups;
}

void Trainer::require_log() const {
  if (log_ && !log_->failure().empty()) throw StateError(log_->failure());
}

void Trainer::report_profile() {
  if (!profile_) return;
  const Profile profile{.rows = profile_->rows(),
                        .steps = profile_->steps(),
                        .seconds = profile_->seconds(),
                        .flops_per_second = gemm_peak_ / context_.world->size()};
  write_profile(options_.run_folder, profile);
  log_->say(profile_table(profile));
}

void Trainer::report_timeline() {
  if (!timeline_->traces()) return;
  const std::vector<files::TraceEvent> events = timeline_->gather(*context_.world);
  if (log_ == nullptr) return;
  const std::string path = options_.run_folder + "/trace.json";
  files::write_trace(path, events);
  log_->say(base::str("timeline of ", config_.log.trace_steps, " in ", path,
                      " (ui.perfetto.dev shows it); lockstep trace ", options_.run_folder,
                      " draws it"));
}

std::string Trainer::summarize(int64_t steps_done, bool stopped) {
  const int64_t samples = ramp_.samples_before(steps_done);
  const int64_t terms_per_sample = task_->terms_per_sample();
  const double rate =
      throughput(step_seconds_, first_step_, ramp_) * static_cast<double>(terms_per_sample);
  RunTotals run{.run_folder = options_.run_folder,
                .val_loss = val_loss_,
                .param_digest = digest_,
                .identity = identity_.text(),
                .steps = steps_done,
                .tokens = samples * terms_per_sample,
                .epochs = task_->epochs(samples),
                .tokens_per_second = rate,
                .mfu = flops_per_term_ * rate / gemm_peak_};
  if (state_->inputs().pipelined() && steps_done > first_step_) {
    run.pipeline = state_->inputs().schedules.front().name;
    // Of the steps of the last size.
    run.bubble = timeline_->bubble(
        *context_.world,
        std::max(first_step_ + detail::warmup_of_throughput(steps_done - first_step_),
                 ramp_.at(steps_done - 1).first_step));
  }
  run.val_accuracy = val_accuracy_;
  run.loss_scale = guard_.loss_scale();
  run.skipped_steps = guard_.skipped();
  run.rewinds = guard_.rewound();
  if (average_) {
    run.average.emplace(
        RunTotals::Average{.val_loss = val_loss_average_, .digest = average_digest_});
  }
  if (noise_) {
    run.noise.emplace(
        RunTotals::Noise{.samples = noise_->samples(),
                         .tokens = noise_->samples() * static_cast<double>(terms_per_sample)});
  }
  run.stopped = stopped;
  run.resumed = resumed_;
  run.checkpoints = {.saves = checkpointer_->times().saves,
                     .bytes = checkpointer_->times().bytes,
                     .pause_seconds = checkpoint_pause_seconds_};
  if (steps_done > 0) {
    run.loss = last_.loss_sum / static_cast<double>(step_terms());
    run.grad_norm = last_.grad_norm;
  }
  plan::RankMemory planned = plan::planned_memory(
      config_, state_->inputs(), context_.dp->rank(),
      state_->parts() != nullptr ? state_->parts()->counts : std::vector<bool>{});
  if (planned.checkpoint > 0 && context_.world->rank() == 0) {
    for (const NamedTensor& value : state_->running_values()) {
      planned.checkpoint += static_cast<int64_t>(value.tensor.nbytes());
    }
  }
  return run_summary(
      *context_.world, run,
      {.samples = samples_,
       .gemm_flops = torch_inside::gemm_flops_of_this_thread() - gemm_flops_at_start_,
       .peak_bytes = account_.peak(),
       .planned = planned,
       .groups = group_traffic(steps_done)});
}

}  // namespace lockstep
