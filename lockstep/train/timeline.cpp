#include "lockstep/train/timeline.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "lockstep/base/str.h"
#include "lockstep/plan/pipeline_timing.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;
using plan::StepOp;

enum Compute { kForward, kBackward, kWeight, kNone };

Compute compute_of(StepOp op) {
  if (op == StepOp::forward) return kForward;
  if (op == StepOp::backward) return kBackward;
  return op == StepOp::weight ? kWeight : kNone;
}

const char* category_of(StepOp op) {
  switch (op) {
    case StepOp::forward:
      return "forward";
    case StepOp::backward:
      return "backward";
    case StepOp::weight:
      return "weight";
    case StepOp::fold:
    case StepOp::fold_use:
    case StepOp::complete:
    case StepOp::norm:
      return "sums";
    case StepOp::update:
      return "optimizer";
    default:
      return "communication";
  }
}

/// What a rank says of itself, for rank 0.
Json said_of(const plan::RankPlace& place, const StageMeans& means) {
  return {{"stage", place.stage},     {"data", place.data},         {"tensor", place.tensor},
          {"forward", means.forward}, {"backward", means.backward}, {"weight", means.weight}};
}

StageMeans means_in(const Json& said) {
  return {said["forward"], said["backward"], said["weight"]};
}

/// By rank; empty on others than rank 0.
std::vector<Json> said_by_all(ProcessGroup& world, const Json& own) {
  const std::vector<std::string> texts = world.gather_text(own.dump());
  std::vector<Json> said;
  if (world.rank() != 0) return said;
  for (const std::string& text : texts) said.push_back(Json::parse(text));
  return said;
}

/// The first pipeline's ranks: of several that compute a stage, one.
std::vector<Json> by_stage(const std::vector<Json>& ranks) {
  std::vector<Json> stages;
  for (const Json& rank : ranks) {
    if (rank["data"] != 0 || rank["tensor"] != 0) continue;
    const auto stage = rank["stage"].get<size_t>();
    stages.resize(std::max(stages.size(), stage + 1));
    stages[stage] = rank;
  }
  return stages;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

Timeline::Timeline(const plan::StepInputs& inputs, const plan::RankPlace& place,
                   const std::string& trace_steps)
    : inputs_(inputs), place_(place), traces_(plan::parse_trace_steps(trace_steps)) {
  const auto chunks = static_cast<size_t>(inputs.pipelined() ? inputs.schedules.front().chunks : 1);
  for (auto& by_chunk : sums_) by_chunk.resize(chunks);
}

void Timeline::add(int64_t step, const std::vector<TimedStep>& timed) {
  plan::StageSpan span;
  bool first = true;
  for (const TimedStep& done : timed) {
    const Compute kind = compute_of(done.step.op);
    if (kind == kNone) continue;
    if (first) span.first_start = done.start;
    first = false;
    span.last_end = std::max(span.last_end, done.start + done.seconds);
    span.busy_seconds += done.seconds;
    Sum& sum = sums_[kind][static_cast<size_t>(done.step.chunk)];
    sum.seconds += done.seconds;
    ++sum.count;
  }
  spans_.push_back(span);
  if (traces_.holds(step)) traced_.emplace_back(step, timed);
}

StageMeans Timeline::means() const {
  StageMeans means;
  std::vector<double>* const lists[] = {&means.forward, &means.backward, &means.weight};
  for (int kind = 0; kind < 3; ++kind) {
    for (const Sum& sum : sums_[kind]) {
      lists[kind]->push_back(sum.count > 0 ? sum.seconds / static_cast<double>(sum.count) : 0);
    }
  }
  return means;
}

/// "F3.1": the third micro-batch of the rank's stream, on chunk 1.
std::string Timeline::name_of(const plan::Step& step) const {
  static constexpr const char* kLetters[] = {"F", "B", "W"};
  const Compute kind = compute_of(step.op);
  if (kind == kNone) return plan::text(step);
  const std::vector<int> leaves = inputs_.leaves.leaves_of(place_.data);
  const auto place = std::find(leaves.begin(), leaves.end(), step.leaf) - leaves.begin();
  const bool chunks = inputs_.pipelined() && inputs_.schedules.front().chunks > 1;
  return base::str(kLetters[kind], place * inputs_.batch.micro_batches_per_grain + step.micro,
                   chunks ? base::str(".", step.chunk) : "");
}

plan::PipelineTimes Timeline::simulated(const std::vector<StageMeans>& stages) const {
  plan::PipelineCosts costs;
  for (const StageMeans& stage : stages) {
    costs.forward.by_stage.push_back(stage.forward);
    costs.backward.by_stage.push_back(stage.backward);
    costs.weight.by_stage.push_back(stage.weight);
  }
  return plan::simulate(inputs_.schedules.front(), costs);
}

std::vector<files::TraceEvent> Timeline::gather(ProcessGroup& world) const {
  Json own = said_of(place_, means());
  for (const auto& [step, timed] : traced_) {
    Json events = Json::array();
    for (const TimedStep& done : timed) {
      events.push_back({name_of(done.step), category_of(done.step.op), done.start, done.seconds});
    }
    own["steps"].push_back(std::move(events));
  }
  const std::vector<Json> ranks = said_by_all(world, own);
  std::vector<files::TraceEvent> events;
  if (ranks.empty()) return events;

  std::vector<StageMeans> of_stage;
  for (const Json& stage : by_stage(ranks)) of_stage.push_back(means_in(stage));
  const std::optional<plan::PipelineTimes> plan =
      inputs_.pipelined() ? std::optional(simulated(of_stage)) : std::nullopt;
  double origin = 0;
  bool any = false;
  for (const Json& rank : ranks) {
    for (const Json& step : rank.value("steps", Json::array())) {
      for (const Json& event : step) {
        origin = any ? std::min(origin, event[2].get<double>()) : event[2].get<double>();
        any = true;
      }
    }
  }
  for (size_t r = 0; r < ranks.size(); ++r) {
    const Json steps = ranks[r].value("steps", Json::array());
    for (size_t at = 0; at < steps.size(); ++at) {
      const Json& step = steps[at];
      double start = 0;  // of the step's computing, on all ranks
      for (const Json& other : ranks) {
        const Json& same = other["steps"][at];
        for (const Json& event : same) {
          if (event[1] != "forward") continue;
          if (start == 0 || event[2].get<double>() < start) start = event[2];
          break;
        }
      }
      for (const Json& event : step) {
        const std::string category = event[1];
        const bool lane = category == "communication";
        events.push_back({.rank = static_cast<int>(r),
                          .lane = lane ? "communication" : "compute",
                          .name = event[0],
                          .category = category,
                          .start = event[2].get<double>() - origin,
                          .seconds = event[3],
                          .planned = false});
      }
      if (!plan) continue;
      for (const plan::PipelineEvent& event : plan->events) {
        if (event.stage != ranks[r]["stage"] || !plan::is_compute(event.step.op)) continue;
        static constexpr const char* kCategories[] = {"forward", "backward", "weight"};
        const bool chunks = inputs_.schedules.front().chunks > 1;
        events.push_back({.rank = static_cast<int>(r),
                          .lane = "compute",
                          .name = plan::text_of(event.step, chunks),
                          .category = kCategories[static_cast<size_t>(event.step.op)],
                          .start = start - origin + event.start,
                          .seconds = event.end - event.start,
                          .planned = true});
      }
    }
  }
  return events;
}

BubbleReport Timeline::bubble(ProcessGroup& world, int64_t skip_steps) const {
  Json own = said_of(place_, means());
  own["spans"] = Json::array();
  for (const plan::StageSpan& span : spans_) {
    own["spans"].push_back({span.first_start, span.last_end, span.busy_seconds});
  }
  const std::vector<Json> ranks = said_by_all(world, own);
  BubbleReport report;
  if (ranks.empty()) return report;
  const std::vector<Json> stages = by_stage(ranks);
  std::vector<double> measured;
  for (size_t step = static_cast<size_t>(skip_steps); step < spans_.size(); ++step) {
    std::vector<plan::StageSpan> spans;
    for (const Json& stage : stages) {
      const Json& span = stage["spans"][step];
      spans.push_back({.first_start = span[0], .last_end = span[1], .busy_seconds = span[2]});
    }
    measured.push_back(plan::bubble_fraction(spans));
  }
  report.measured = median(measured);
  std::vector<StageMeans> of_stage;
  plan::StageSeconds whole{0, 0, 0};
  for (const Json& stage : stages) {
    of_stage.push_back(means_in(stage));
    const auto sum = [](const std::vector<double>& chunks) {
      double total = 0;
      for (const double seconds : chunks) total += seconds;
      return total;
    };
    const auto share = 1.0 / static_cast<double>(stages.size());
    whole.forward += share * sum(of_stage.back().forward);
    whole.backward += share * sum(of_stage.back().backward);
    whole.weight += share * sum(of_stage.back().weight);
  }
  report.planned = simulated(of_stage).bubble();
  report.formula = plan::bubble_formula(inputs_.schedules.front(), whole);
  return report;
}

}  // namespace lockstep
