#include "lockstep/files/prometheus.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::files {
namespace {

bool is_letter(char c) { return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || c == '_'; }

void require_name(std::string_view name, bool colons) {
  const bool first = !name.empty() && (is_letter(name[0]) || (colons && name[0] == ':'));
  const bool rest = std::all_of(name.begin(), name.end(), [&](char c) {
    return is_letter(c) || ('0' <= c && c <= '9') || (colons && c == ':');
  });
  if (first && rest) return;
  throw UsageError(base::str("\"", name,
                             "\" is no name that Prometheus takes: letters, digits and "
                             "_, no digit first."));
}

/// Backslash and line feed stand for themselves nowhere; a quote would end a label's value.
std::string escaped(std::string_view text, bool quotes) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '"' && quotes) {
      out += "\\\"";
    } else {
      out += c;
    }
  }
  return out;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end.ptr};
}

std::string head(const std::string& name, const std::string& help, const char* kind) {
  require_name(name, /*colons=*/true);
  return base::str("# HELP ", name, " ", escaped(help, false), "\n# TYPE ", name, " ", kind, "\n");
}

std::string line(const std::string& name, const PrometheusSample& sample) {
  std::string labels;
  for (const auto& [label, value] : sample.labels) {
    require_name(label, /*colons=*/false);
    labels += base::str(labels.empty() ? "{" : ",", label, "=\"", escaped(value, true), "\"");
  }
  if (!labels.empty()) labels += "}";
  return name + labels + " " + number(sample.value) + "\n";
}

}  // namespace

std::string prometheus_text(const std::vector<PrometheusMetric>& metrics) {
  std::string text;
  for (const PrometheusMetric& metric : metrics) {
    const bool counter = metric.kind == PrometheusMetric::Kind::counter;
    text += head(metric.name, metric.help, counter ? "counter" : "gauge");
    for (const PrometheusSample& sample : metric.samples) text += line(metric.name, sample);
  }
  return text;
}

PrometheusHistogram::PrometheusHistogram(std::string name, std::string help,
                                         std::vector<double> bounds)
    : name_(std::move(name)),
      help_(std::move(help)),
      bounds_(std::move(bounds)),
      counts_(bounds_.size() + 1) {}

void PrometheusHistogram::observe(double value) {
  const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  ++counts_[static_cast<size_t>(bound - bounds_.begin())];
  sum_ += value;
}

std::string PrometheusHistogram::text() const {
  std::string text = head(name_, help_, "histogram");
  int64_t seen = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    seen += counts_[i];
    const std::string bound = i < bounds_.size() ? number(bounds_[i]) : "+Inf";
    text += line(name_ + "_bucket", {{{"le", bound}}, static_cast<double>(seen)});
  }
  text += line(name_ + "_sum", {{}, sum_});
  return text + line(name_ + "_count", {{}, static_cast<double>(seen)});
}

}  // namespace lockstep::files
