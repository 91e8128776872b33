#include "lockstep/files/prometheus.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lockstep/base/error.h"

namespace lockstep::files {
namespace {

using Kind = PrometheusMetric::Kind;

TEST(Prometheus, IsTheTextFormat) {
  EXPECT_EQ(prometheus_text({{.name = "lockstep_steps_total",
                              .help = "Optimizer steps done.",
                              .kind = Kind::counter,
                              .samples = {{{}, 12}}},
                             {.name = "lockstep_memory_bytes",
                              .help = "Memory of rank 0.",
                              .samples = {{{{"kind", "parameters"}}, 4096},
                                          {{{"kind", "a\\b\"c\nd"}, {"rank", "0"}}, 0.5}}}}),
            "# HELP lockstep_steps_total Optimizer steps done.\n"
            "# TYPE lockstep_steps_total counter\n"
            "lockstep_steps_total 12\n"
            "# HELP lockstep_memory_bytes Memory of rank 0.\n"
            "# TYPE lockstep_memory_bytes gauge\n"
            "lockstep_memory_bytes{kind=\"parameters\"} 4096\n"
            "lockstep_memory_bytes{kind=\"a\\\\b\\\"c\\nd\",rank=\"0\"} 0.5\n");
}

TEST(Prometheus, HelpKeepsItsQuotesAndOneLine) {
  const std::string text = prometheus_text({{.name = "a", .help = "say \"x\"\nand \\"}});
  EXPECT_EQ(text, "# HELP a say \"x\"\\nand \\\\\n# TYPE a gauge\n");
}

TEST(Prometheus, NumbersThatAreNone) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::string text = prometheus_text(
      {{.name = "a", .help = "h", .samples = {{{}, std::nan("")}, {{}, inf}, {{}, -inf}}}});
  EXPECT_EQ(text, "# HELP a h\n# TYPE a gauge\na NaN\na +Inf\na -Inf\n");
}

TEST(Prometheus, RefusesNamesThatAScrapeWouldRefuse) {
  for (const char* bad : {"", "1a", "a-b", "a b", "ä"}) {
    EXPECT_THROW(prometheus_text({{.name = bad, .help = ""}}), UsageError) << bad;
    EXPECT_THROW(prometheus_text({{.name = "a", .help = "", .samples = {{{{bad, "v"}}, 1}}}}),
                 UsageError)
        << bad;
  }
}

TEST(Prometheus, HistogramBoundsIncludeEachOther) {
  PrometheusHistogram histogram("lockstep_step_duration_seconds", "Time of a step.", {0.1, 1});
  for (const double seconds : {0.05, 0.1, 0.5, 7.0}) histogram.observe(seconds);
  EXPECT_EQ(histogram.text(),
            "# HELP lockstep_step_duration_seconds Time of a step.\n"
            "# TYPE lockstep_step_duration_seconds histogram\n"
            "lockstep_step_duration_seconds_bucket{le=\"0.1\"} 2\n"
            "lockstep_step_duration_seconds_bucket{le=\"1\"} 3\n"
            "lockstep_step_duration_seconds_bucket{le=\"+Inf\"} 4\n"
            "lockstep_step_duration_seconds_sum 7.65\n"
            "lockstep_step_duration_seconds_count 4\n");
}

}  // namespace
}  // namespace lockstep::files
