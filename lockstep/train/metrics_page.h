/// The figures of a run as /metrics shows them: filled by the training thread, read by the
/// server's.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "lockstep/files/prometheus.h"
#include "lockstep/train/step_report.h"

namespace lockstep {

class MetricsPage {
 public:
  /// `engine` carries the ranks' collectives.
  MetricsPage(int ranks, std::string engine);

  void step(const StepReport& report);
  void evaluation(double val_loss, double of_average = StepReport::kNone);

  /// In Prometheus' text format. Any thread.
  std::string text() const;

 private:
  std::vector<files::PrometheusMetric> metrics() const;

  const int ranks_;
  const std::string engine_;
  mutable std::mutex mutex_;  // guards all below
  StepReport last_;
  int64_t tokens_ = 0;
  int64_t comm_bytes_ = 0;
  double comm_wait_seconds_ = 0;
  PhaseSeconds phase_seconds_{};
  double val_loss_;
  double val_loss_average_;
  files::PrometheusHistogram durations_;
};

}  // namespace lockstep
