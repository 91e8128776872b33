#include "lockstep/report/trace_summary.h"

#include <algorithm>
#include <map>

#include "lockstep/base/number_text.h"
#include "lockstep/base/str.h"
#include "lockstep/plan/bubble.h"

namespace lockstep::report {
namespace {

using files::TraceEvent;
using plan::StageSpan;

bool computes(const TraceEvent& event) {
  return event.category == "forward" || event.category == "backward" || event.category == "weight";
}

void add(StageSpan& span, const TraceEvent& event) {
  const double end = event.start + event.seconds;
  span.first_start = span.busy_seconds > 0 ? std::min(span.first_start, event.start) : event.start;
  span.last_end = span.busy_seconds > 0 ? std::max(span.last_end, end) : end;
  span.busy_seconds += event.seconds;
}

/// A rank's computing, by step: the optimizer stands between two.
std::vector<StageSpan> steps_of(const std::vector<TraceEvent>& in_order) {
  std::vector<StageSpan> steps;
  bool begins = true;
  for (const TraceEvent& event : in_order) {
    if (event.category == "optimizer") begins = true;
    if (!computes(event)) continue;
    if (begins) steps.emplace_back();
    begins = false;
    add(steps.back(), event);
  }
  return steps;
}

/// Where the computing of a step begins and ends, on all ranks.
StageSpan around(const std::vector<StageSpan>& ranks) {
  StageSpan step = ranks.front();
  for (const StageSpan& rank : ranks) {
    step.first_start = std::min(step.first_start, rank.first_start);
    step.last_end = std::max(step.last_end, rank.last_end);
  }
  return step;
}

/// Of `steps` of a rank, in the steps of all.
double idle_share(const std::vector<StageSpan>& steps,
                  const std::vector<std::vector<StageSpan>>& by_step) {
  StageSpan all;
  for (size_t step = 0; step < steps.size(); ++step) {
    const StageSpan whole = around(by_step[step]);
    all.last_end += whole.last_end - whole.first_start;
    all.busy_seconds += steps[step].busy_seconds;
  }
  return all.idle_share();
}

std::string padded(const std::string& text, size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

std::string seconds_text(double seconds) { return base::fixed_text(seconds, 4) + " s"; }
std::string percent(double share) { return base::fixed_text(100 * share, 1) + " %"; }

}  // namespace

TraceSummary summarize(const std::vector<TraceEvent>& events, bool planned) {
  std::map<int, std::vector<TraceEvent>> by_rank;
  for (const TraceEvent& event : events) {
    if (event.planned == planned) by_rank[event.rank].push_back(event);
  }
  TraceSummary summary;
  std::vector<std::vector<StageSpan>> by_step;
  std::vector<std::vector<StageSpan>> by_line;
  for (auto& [rank, own] : by_rank) {
    std::stable_sort(own.begin(), own.end(),
                     [](const TraceEvent& a, const TraceEvent& b) { return a.start < b.start; });
    RankSummary line{.rank = rank};
    for (const TraceEvent& event : own) {
      if (computes(event)) line.compute_seconds += event.seconds;
      if (event.category == "communication") line.communication_seconds += event.seconds;
    }
    summary.ranks.push_back(line);
    const std::vector<StageSpan>& steps = by_line.emplace_back(steps_of(own));
    by_step.resize(std::max(by_step.size(), steps.size()));
    for (size_t step = 0; step < steps.size(); ++step) by_step[step].push_back(steps[step]);
  }
  for (size_t line = 0; line < by_line.size(); ++line) {
    summary.ranks[line].idle_share = idle_share(by_line[line], by_step);
  }
  summary.steps = static_cast<int>(by_step.size());
  for (const auto& spans : by_step) summary.bubble += plan::bubble_fraction(spans) / summary.steps;
  return summary;
}

std::string text_of(const TraceSummary& summary) {
  std::string text = "            computing  communication     idle\n";
  for (const RankSummary& rank : summary.ranks) {
    std::string name = base::str("rank ", rank.rank);
    name.resize(std::max<size_t>(name.size(), 9), ' ');
    text += name + padded(seconds_text(rank.compute_seconds), 12) +
            padded(seconds_text(rank.communication_seconds), 15) +
            padded(percent(rank.idle_share), 9) + "\n";
  }
  return text + base::str("bubble ", percent(summary.bubble), " of all ranks' time, ",
                          summary.steps, summary.steps == 1 ? " step\n" : " steps\n");
}

}  // namespace lockstep::report
