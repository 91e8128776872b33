#include "lockstep/plan/pipeline_csv.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::plan {
namespace {

constexpr int kMostMicroBatches = 1'000'000;
constexpr int kMostChunks = 1'000;

std::string_view trimmed(std::string_view text) {
  const char* const blanks = " \t\r";
  const size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

/// The parts of `text` between separators.
std::vector<std::string_view> parts_of(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.push_back(trimmed(text.substr(0, end)));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

/// A whole number below `limit` that is all of `text`.
std::optional<int> number_in(std::string_view text, int limit) {
  int number = -1;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end || number < 0 || number >= limit) return {};
  return number;
}

std::optional<PipelineStep> step_in(std::string_view cell) {
  static const std::pair<std::string_view, PipelineOp> kLetters[] = {
      {"SF", PipelineOp::send_forward},  {"RF", PipelineOp::recv_forward},
      {"SB", PipelineOp::send_backward}, {"RB", PipelineOp::recv_backward},
      {"F", PipelineOp::forward},        {"B", PipelineOp::backward},
      {"W", PipelineOp::weight}};
  for (const auto& [letters, op] : kLetters) {
    if (!cell.starts_with(letters)) continue;
    const auto numbers = parts_of(cell.substr(letters.size()), '.');
    if (numbers.size() > 2) return {};
    const auto micro = number_in(numbers[0], kMostMicroBatches);
    const auto chunk = numbers.size() == 1 ? 0 : number_in(numbers[1], kMostChunks);
    if (!micro || !chunk) return {};
    return PipelineStep{op, *chunk, *micro};
  }
  return {};
}

PipelinePlacement placement_in(const std::vector<std::string_view>& cells,
                               const std::string& name) {
  if (cells.size() >= 2 && cells[1] == "v") return PipelinePlacement::v;
  if (cells.size() >= 2 && cells[1] == "loop") return PipelinePlacement::loop;
  throw UsageError(base::str("the pipeline schedule ", name,
                             ": row 1: the placement is v or loop, ", "not \"",
                             cells.size() < 2 ? std::string_view() : cells[1], "\"."));
}

std::vector<PipelineStep> steps_in(const std::vector<std::string_view>& cells, size_t row,
                                   const std::string& name) {
  std::vector<PipelineStep> steps;
  for (size_t column = 0; column < cells.size(); ++column) {
    if (cells[column].empty()) continue;
    const auto step = step_in(cells[column]);
    if (!step) {
      throw UsageError(base::str(
          "the pipeline schedule ", name, ": row ", row, ", column ", column + 1, ": \"",
          cells[column],
          "\" is no step.\n  Expected F, B or W, or SF, RF, SB or RB for messages, then the "
          "micro-batch and, of several, .chunk: F0, B3, W2.1"));
    }
    steps.push_back(*step);
  }
  return steps;
}

PipelineSchedule computing_only(PipelineSchedule schedule) {
  for (auto& steps : schedule.steps) {
    std::erase_if(steps, [](const PipelineStep& step) { return !is_compute(step.op); });
  }
  return schedule;
}

}  // namespace

PipelineSchedule parse_pipeline_csv(std::string_view text, const std::string& name) {
  PipelineSchedule schedule;
  schedule.name = name;
  bool has_messages = false;
  const auto rows = parts_of(text, '\n');
  for (size_t row = 0; row < rows.size(); ++row) {
    if (rows[row].empty()) continue;
    const auto cells = parts_of(rows[row], ',');
    if (row == 0 && cells[0] == "placement") {
      schedule.placement = placement_in(cells, name);
      continue;
    }
    schedule.steps.push_back(steps_in(cells, row + 1, name));
    for (const PipelineStep& step : schedule.steps.back()) {
      schedule.chunks = std::max(schedule.chunks, step.chunk + 1);
      schedule.micro_batches = std::max(schedule.micro_batches, step.micro + 1);
      schedule.splits_weight |= step.op == PipelineOp::weight;
      has_messages |= !is_compute(step.op);
    }
  }
  if (schedule.micro_batches == 0) {
    throw UsageError(base::str("the pipeline schedule ", name,
                               " has no step.\n  Expected a row a stage: F0,F1,B0,B1"));
  }
  schedule.stages = static_cast<int>(schedule.steps.size());
  return has_messages ? schedule : with_communication(std::move(schedule));
}

std::string pipeline_csv(const PipelineSchedule& schedule) {
  const PipelineSchedule computing = computing_only(schedule);
  const bool added = with_communication(computing) == schedule;
  std::string text = schedule.placement == PipelinePlacement::v ? "placement,v\n" : "";
  for (const auto& steps : (added ? computing : schedule).steps) {
    for (size_t i = 0; i < steps.size(); ++i) {
      text += (i > 0 ? "," : "") + text_of(steps[i], schedule.chunks > 1);
    }
    text += "\n";
  }
  return text;
}

}  // namespace lockstep::plan
