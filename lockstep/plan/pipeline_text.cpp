#include "lockstep/plan/pipeline_text.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "lockstep/base/str.h"

namespace lockstep::plan {
namespace {

std::string padded(std::string text, size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

/// `head` and `cells`, each as wide as the widest of all, without blanks at the end.
std::string row(const std::string& head, size_t head_width, const std::vector<std::string>& cells,
                size_t width) {
  std::string text = padded(head, head_width) + "  ";
  for (const std::string& cell : cells) text += padded(cell, width) + " ";
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

}  // namespace

std::string pipeline_grid(const PipelineSchedule& schedule, const PipelineTimes& times,
                          double unit) {
  const auto column = [&](double seconds) {
    return static_cast<size_t>(std::lround(seconds / unit));
  };
  const size_t columns = column(times.seconds);
  const auto stages = static_cast<size_t>(schedule.stages);
  std::vector<std::vector<std::string>> cells(stages, std::vector<std::string>(columns, "."));
  size_t width = 2;
  for (const PipelineEvent& event : times.events) {
    if (!is_compute(event.step.op) || column(event.start) >= columns) continue;
    auto& line = cells[static_cast<size_t>(event.stage)];
    std::fill(line.begin() + static_cast<int64_t>(column(event.start)),
              line.begin() + static_cast<int64_t>(column(event.end)), "--");
    std::string& first = line[column(event.start)];
    first = text_of(event.step, schedule.chunks > 1);
    width = std::max(width, first.size());
  }
  std::vector<std::string> clock;
  for (size_t i = 0; i < columns; ++i) clock.push_back(std::to_string(i));
  if (columns > 0) width = std::max(width, clock.back().size());
  const size_t head = base::str("stage ", schedule.stages - 1).size();
  std::string text = row("time", head, clock, width);
  for (size_t stage = 0; stage < stages; ++stage) {
    text += row(base::str("stage ", stage), head, cells[stage], width);
  }
  return text;
}

double grid_unit(const StageSeconds& seconds, int chunks, bool splits_weight) {
  const auto thousandths = [](double value) { return std::llround(value * 1000); };
  const int64_t forward = thousandths(seconds.forward);
  const int64_t backward = thousandths(seconds.backward);
  const int64_t weight = thousandths(seconds.weight);
  const int64_t unit = splits_weight ? std::gcd(std::gcd(forward, backward), weight)
                                     : std::gcd(forward, backward + weight);
  return static_cast<double>(unit) / 1000 / chunks;
}

}  // namespace lockstep::plan
