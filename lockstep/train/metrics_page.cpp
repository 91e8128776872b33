#include "lockstep/train/metrics_page.h"

#include <torch/version.h>

#include <cmath>
#include <limits>

namespace lockstep {
namespace {

using Kind = files::PrometheusMetric::Kind;
using torch_inside::kPhaseNames;
using torch_inside::Phase;

double as_double(int64_t count) { return static_cast<double>(count); }

files::PrometheusMetric one(const char* name, const char* help, Kind kind, double value) {
  return {.name = name, .help = help, .kind = kind, .samples = {{{}, value}}};
}

}  // namespace

MetricsPage::MetricsPage(int ranks, std::string engine)
    : ranks_(ranks),
      engine_(std::move(engine)),
      val_loss_(std::numeric_limits<double>::quiet_NaN()),
      val_loss_average_(std::numeric_limits<double>::quiet_NaN()),
      durations_("lockstep_step_duration_seconds", "Time of an optimizer step.",
                 {0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}) {}

void MetricsPage::step(const StepReport& report) {
  const std::lock_guard lock(mutex_);
  last_ = report;
  tokens_ += report.tokens;
  comm_bytes_ += report.comm_bytes;
  comm_wait_seconds_ += report.comm_wait_seconds;
  for (size_t i = 0; i < phase_seconds_.size(); ++i) phase_seconds_[i] += report.phases[i];
  durations_.observe(report.seconds);
}

void MetricsPage::evaluation(double val_loss, double of_average) {
  const std::lock_guard lock(mutex_);
  val_loss_ = val_loss;
  val_loss_average_ = of_average;
}

std::string MetricsPage::text() const {
  const std::lock_guard lock(mutex_);
  return files::prometheus_text(metrics()) + durations_.text();
}

std::vector<files::PrometheusMetric> MetricsPage::metrics() const {
  std::vector<files::PrometheusMetric> all = {
      one("lockstep_steps_total", "Optimizer steps done.", Kind::counter, as_double(last_.step)),
      one("lockstep_tokens_total", "Tokens trained on, all ranks.", Kind::counter,
          as_double(tokens_)),
      one("lockstep_epoch", "Pass over the training data, from 1.", Kind::gauge,
          as_double(last_.epoch)),
      one("lockstep_ranks", "Ranks of the job.", Kind::gauge, ranks_)};
  if (last_.step > 0) {
    all.push_back(
        one("lockstep_loss", "Mean nats per token of the last step.", Kind::gauge, last_.loss));
    all.push_back(one("lockstep_grad_norm", "Norm of the whole gradient before clipping.",
                      Kind::gauge, last_.grad_norm));
    all.push_back(
        one("lockstep_learning_rate", "Learning rate of the last step.", Kind::gauge, last_.lr));
    all.push_back(one("lockstep_tokens_per_second", "Tokens of the last step over its time.",
                      Kind::gauge, last_.tokens_per_second));
    all.push_back(one("lockstep_mfu_ratio",
                      "Model operations over what the measured matrix product rate allows.",
                      Kind::gauge, last_.mfu));
  }
  all.push_back(one("lockstep_skipped_steps_total", "Steps that were computed and not taken.",
                    Kind::counter, as_double(last_.skipped)));
  all.push_back(one("lockstep_loss_scale", "What losses are multiplied by before backward.",
                    Kind::gauge, last_.loss_scale));
  if (!std::isnan(last_.noise_scale)) {
    all.push_back(one("lockstep_noise_scale_samples", "Gradient noise scale.", Kind::gauge,
                      last_.noise_scale));
  }
  if (!std::isnan(val_loss_average_)) {
    all.push_back(one("lockstep_validation_loss_ema", "The same of the parameters' moving average.",
                      Kind::gauge, val_loss_average_));
  }
  if (!std::isnan(val_loss_)) {
    all.push_back(one("lockstep_validation_loss", "Mean nats per token of the last evaluation.",
                      Kind::gauge, val_loss_));
  }
  all.push_back({.name = "lockstep_comm_bytes_total",
                 .help = "Bytes of peers' memory that rank 0 read and wrote.",
                 .kind = Kind::counter,
                 .samples = {{{{"engine", engine_}}, as_double(comm_bytes_)}}});
  all.push_back(one("lockstep_comm_wait_seconds_total",
                    "Time rank 0 waited for collectives that backward did not hide.", Kind::counter,
                    comm_wait_seconds_));
  all.push_back(one("lockstep_data_wait_seconds_total", "Time rank 0 waited for its next samples.",
                    Kind::counter, phase_seconds_[static_cast<size_t>(Phase::data)]));
  files::PrometheusMetric phases{.name = "lockstep_phase_seconds_total",
                                 .help = "Time of rank 0's steps by their parts.",
                                 .kind = Kind::counter,
                                 .samples = {}};
  for (size_t i = 0; i < phase_seconds_.size(); ++i) {
    phases.samples.push_back({{{"phase", kPhaseNames[i]}}, phase_seconds_[i]});
  }
  all.push_back(std::move(phases));
  files::PrometheusMetric memory{
      .name = "lockstep_memory_bytes", .help = "Memory of rank 0 after the step.", .samples = {}};
  for (size_t i = 0; i < last_.memory.size(); ++i) {
    memory.samples.push_back({{{"kind", memory::kKindNames[i]}}, as_double(last_.memory[i])});
  }
  all.push_back(std::move(memory));
  all.push_back({.name = "lockstep_build_info",
                 .help = "What runs; the value is always 1.",
                 .samples = {{{{"torch", TORCH_VERSION}, {"engine", engine_}}, 1}}});
  return all;
}

}  // namespace lockstep
