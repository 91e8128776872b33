/// Metrics as text for Prometheus: what a scrape of /metrics reads.
///
///   # HELP lockstep_loss Mean nats per token of the last step.
///   # TYPE lockstep_loss gauge
///   lockstep_loss 1.8077
///
/// Pure: a list of metrics in, text out. Numbers do not depend on the locale.
/// Source  prometheus.io, exposition formats, text format 0.0.4
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::files {

inline constexpr const char* kPrometheusContentType = "text/plain; version=0.0.4; charset=utf-8";

/// Name and value, in the order in which they are written.
using PrometheusLabels = std::vector<std::pair<std::string, std::string>>;

struct PrometheusSample {
  PrometheusLabels labels = {};
  double value = 0;
};

struct PrometheusMetric {
  enum class Kind { counter, gauge };
  std::string name;  // counters end in _total
  std::string help;
  Kind kind = Kind::gauge;
  std::vector<PrometheusSample> samples = {};
};

/// Counts of observed values, by upper bounds that include each other.
class PrometheusHistogram {
 public:
  /// `bounds` ascend; a last one, +Inf, is implied.
  PrometheusHistogram(std::string name, std::string help, std::vector<double> bounds);
  void observe(double value);
  std::string text() const;

 private:
  std::string name_;
  std::string help_;
  std::vector<double> bounds_;
  std::vector<int64_t> counts_;  // of values in (bound before, bound]; the last: above all bounds
  double sum_ = 0;
};

/// HELP, TYPE and a line a sample, for each metric. Every line ends with a line feed. Throws
/// UsageError for a name or a label name that Prometheus would refuse.
std::string prometheus_text(const std::vector<PrometheusMetric>& metrics);

}  // namespace lockstep::files
