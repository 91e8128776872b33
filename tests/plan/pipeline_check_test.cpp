#include "lockstep/plan/pipeline_check.h"

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "tests/plan/pipelines.h"

namespace lockstep::plan {
namespace {

constexpr auto F = PipelineOp::forward;
constexpr auto B = PipelineOp::backward;
constexpr auto W = PipelineOp::weight;
constexpr auto SF = PipelineOp::send_forward;
constexpr auto RF = PipelineOp::recv_forward;
constexpr auto SB = PipelineOp::send_backward;
constexpr auto RB = PipelineOp::recv_backward;

std::string refusal(const PipelineSchedule& schedule, int buffers = 100) {
  try {
    check_pipeline(schedule, buffers);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

/// Steps of chunk 0, by stage.
PipelineSchedule of(int micro_batches,
                    const std::vector<std::vector<std::pair<PipelineOp, int>>>& stages) {
  PipelineSchedule schedule;
  schedule.name = "mine";
  schedule.stages = static_cast<int>(stages.size());
  schedule.micro_batches = micro_batches;
  for (const auto& stage : stages) {
    auto& steps = schedule.steps.emplace_back();
    for (const auto& [op, micro] : stage) {
      steps.push_back({op, 0, micro});
      schedule.splits_weight |= op == W;
    }
  }
  return schedule;
}

/// A right schedule of two stages and two micro-batches.
PipelineSchedule two_stages() { return plan_pipeline({"1f1b", 2, 1, 2}); }

TEST(PipelineCheck, EveryScheduleRunsWithTheFewestBuffersAndNotWithFewer) {
  for_each_pipeline([](const PipelineSchedule& schedule) {
    const int fewest = fewest_buffers(schedule);
    ASSERT_NO_THROW(check_pipeline(schedule, fewest));
    ASSERT_NO_THROW(check_pipeline(schedule, fewest + 1));
    if (fewest > 0) {
      ASSERT_THROW(check_pipeline(schedule, fewest - 1), UsageError);
    }
    // Queues, not one message at a time, are what every schedule but GPipe's stands on.
    ASSERT_LE(fewest, std::max(1, schedule.chunks * schedule.stages));
  });
}

TEST(PipelineCheck, GPipeAloneNeedsNoBuffer) {
  EXPECT_EQ(fewest_buffers(plan_pipeline({"gpipe", 4, 1, 8})), 0);
  EXPECT_EQ(fewest_buffers(plan_pipeline({"1f1b", 4, 1, 8})), 1);
  EXPECT_EQ(fewest_buffers(plan_pipeline({"zero-bubble", 4, 1, 8})), 1);
}

TEST(PipelineCheck, PeaksAreTheClosedForms) {
  for_each_pipeline([](const PipelineSchedule& schedule) {
    const int P = schedule.stages;
    const int M = schedule.micro_batches;
    for (int stage = 0; stage < P; ++stage) {
      ASSERT_EQ(peak_in_flight(schedule, stage), in_flight(schedule, stage));
      if (schedule.name == "zero-bubble") {
        ASSERT_EQ(peak_held(schedule, stage), std::min(M, P));
        ASSERT_EQ(peak_weights_held(schedule, stage), std::min(M, stage + 1));
      } else if (schedule.name == "zero-bubble-v") {
        ASSERT_LE(peak_held(schedule, stage), 2 * P);
      } else {
        ASSERT_EQ(peak_held(schedule, stage), peak_in_flight(schedule, stage));
        ASSERT_EQ(peak_weights_held(schedule, stage), 0);
      }
    }
  });
}

TEST(PipelineCheck, NamesAMessageWithoutItsOtherEnd) {
  PipelineSchedule unsent = two_stages();
  std::erase(unsent.steps[1], PipelineStep{SB, 0, 1});
  EXPECT_EQ(refusal(unsent),
            "the pipeline schedule \"1f1b\": stage 0, step 6 (RB1) has no send on stage 1.");
  PipelineSchedule unreceived = two_stages();
  std::erase(unreceived.steps[1], PipelineStep{RF, 0, 1});
  EXPECT_EQ(refusal(unreceived),
            "the pipeline schedule \"1f1b\": stage 0, step 3 (SF1) has no receive on stage 1.");
  EXPECT_EQ(refusal(of(1, {{{F, 0}, {SF, 0}, {B, 0}}, {{RF, 0}, {F, 0}, {B, 0}}})),
            "the pipeline schedule \"mine\": stage 0, step 2 (B0) computes before its input has "
            "come: RB0 must stand before it.");
  // The first stage's last gradient goes nowhere.
  EXPECT_EQ(refusal(of(1, {{{F, 0}, {B, 0}, {SB, 0}}})),
            "the pipeline schedule \"mine\": stage 0, step 2 (SB0) has no stage at its other end.");
}

TEST(PipelineCheck, NamesTheTurnOfAVInTheWrongOrder) {
  PipelineSchedule v = plan_pipeline({"zero-bubble-v", 2, 2, 1});
  std::swap(v.steps[1][1], v.steps[1][2]);
  EXPECT_EQ(refusal(v),
            "the pipeline schedule \"zero-bubble-v\": stage 1, step 1 (F0.1) comes before F0.0.");
}

TEST(PipelineCheck, NamesMessagesThatCross) {
  const PipelineSchedule crossed =
      of(2, {{{F, 0}, {F, 1}, {SF, 1}, {SF, 0}, {RB, 0}, {B, 0}, {RB, 1}, {B, 1}},
             {{RF, 0}, {F, 0}, {RF, 1}, {F, 1}, {B, 0}, {SB, 0}, {B, 1}, {SB, 1}}});
  EXPECT_EQ(refusal(crossed),
            "the pipeline schedule \"mine\": stage 1, step 0 (RF0) is crossed: the next message "
            "from stage 0 is stage 0, step 2 (SF1).\n  Receive in the order of the sends.");
}

TEST(PipelineCheck, PrintsTheStagesThatWaitForEachOther) {
  // Both send first: a send that waits for its receive never comes back.
  EXPECT_EQ(refusal(two_stages(), 0),
            "the pipeline schedule \"1f1b\" stands still with 0 messages held by an edge:\n"
            "  stage 0, step 3 (SF1) waits for stage 1\n"
            "  stage 1, step 3 (SB0) waits for stage 0\n"
            "  It needs edges that hold 1.");
  EXPECT_EQ(refusal(two_stages(), 1), "");
  // Each waits for what the other sends only afterwards: no buffer helps.
  const PipelineSchedule early =
      of(2, {{{F, 0}, {SF, 0}, {RB, 0}, {B, 0}, {F, 1}, {SF, 1}, {RB, 1}, {B, 1}},
             {{RF, 0}, {F, 0}, {RF, 1}, {F, 1}, {B, 0}, {SB, 0}, {B, 1}, {SB, 1}}});
  EXPECT_EQ(refusal(early),
            "the pipeline schedule \"mine\" stands still with 100 messages held by an edge:\n"
            "  stage 0, step 2 (RB0) waits for stage 1\n"
            "  stage 1, step 2 (RF1) waits for stage 0\n"
            "  No number of messages is enough: change the order of these steps.");
}

TEST(PipelineCheck, NamesWhatIsOutOfOrder) {
  EXPECT_EQ(refusal(of(1, {{{B, 0}, {F, 0}}})),
            "the pipeline schedule \"mine\": stage 0, step 0 (B0) comes before F0.");
  EXPECT_EQ(refusal(of(2, {{{F, 0}, {F, 1}, {B, 1}, {B, 0}}})),
            "the pipeline schedule \"mine\": stage 0, step 3 (B0) comes after B1: gradients are "
            "summed in ascending micro-batches.");
  EXPECT_EQ(refusal(of(2, {{{F, 0}, {F, 1}, {B, 0}, {B, 1}, {W, 1}, {W, 0}}})),
            "the pipeline schedule \"mine\": stage 0, step 5 (W0) comes after W1: gradients are "
            "summed in ascending micro-batches.");
  EXPECT_EQ(refusal(of(1, {{{F, 0}, {W, 0}, {B, 0}}})),
            "the pipeline schedule \"mine\": stage 0, step 1 (W0) comes before B0.");
  EXPECT_EQ(refusal(of(2, {{{F, 0}, {B, 0}, {F, 1}}})),
            "the pipeline schedule \"mine\": stage 0 never does B1.");
  EXPECT_EQ(refusal(of(1, {{{F, 0}, {B, 0}, {W, 0}}, {}})),
            "the pipeline schedule \"mine\": stage 1 never does F0.");
  EXPECT_EQ(refusal(of(1, {{{F, 0}, {F, 0}, {B, 0}}})),
            "the pipeline schedule \"mine\": stage 0, step 1 (F0) comes a second time.");
  EXPECT_EQ(
      refusal(of(1, {{{SF, 0}, {F, 0}, {RB, 0}, {B, 0}}, {{RF, 0}, {F, 0}, {B, 0}, {SB, 0}}})),
      "the pipeline schedule \"mine\": stage 0, step 0 (SF0) sends what F0 has not made "
      "yet.");
  EXPECT_EQ(refusal(of(1, {{{F, 7}}})),
            "the pipeline schedule \"mine\": stage 0, step 0 (F7) is of chunk 0 and micro-batch "
            "7: there are 1 chunks and 1 micro-batches.");
  PipelineSchedule joined = of(1, {{{F, 0}, {B, 0}, {W, 0}}});
  joined.splits_weight = false;
  EXPECT_EQ(refusal(joined),
            "the pipeline schedule \"mine\": stage 0, step 2 (W0): this schedule has its weights "
            "in backward.");
  PipelineSchedule short_one = two_stages();
  short_one.steps.pop_back();
  EXPECT_EQ(refusal(short_one),
            "the pipeline schedule \"1f1b\": it has the steps of 1 stages, not of 2.");
}

/// Carries a schedule out message by message, a stage that can go on taken at random each time, and
/// says whether all came right: a second opinion that shares no code with the check.
class Executor {
 public:
  Executor(const PipelineSchedule& schedule, int buffers, std::mt19937& random)
      : s_(schedule), buffers_(buffers), at_(schedule.steps.size(), 0), seen_(at_.size()) {
    std::vector<int> order(at_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    for (bool moved = true; moved && right_;) {
      moved = false;
      std::shuffle(order.begin(), order.end(), random);
      for (const int stage : order) moved |= step(stage);
    }
  }

  bool right() const {
    if (!right_) return false;
    for (size_t stage = 0; stage < at_.size(); ++stage) {
      if (at_[stage] != s_.steps[stage].size()) return false;
      for (int chunk = 0; chunk < s_.chunks; ++chunk) {
        for (int micro = 0; micro < s_.micro_batches; ++micro) {
          if (!seen_[stage].contains({F, chunk, micro})) return false;
          if (!seen_[stage].contains({B, chunk, micro})) return false;
          if (s_.splits_weight && !seen_[stage].contains({W, chunk, micro})) return false;
        }
      }
    }
    return std::all_of(queues_.begin(), queues_.end(),
                       [](const auto& queue) { return queue.second.empty(); });
  }

 private:
  using Parcel = std::tuple<int, int, bool>;  // virtual stage that needs it, micro-batch, forward

  bool wrong() {
    right_ = false;
    return false;
  }

  bool step(int stage) {
    const size_t i = static_cast<size_t>(stage);
    if (!right_ || at_[i] == s_.steps[i].size()) return false;
    const PipelineStep step = s_.steps[i][at_[i]];
    const int k = s_.virtual_stage(stage, step.chunk);
    const int last = s_.virtual_stages() - 1;
    auto& seen = seen_[i];
    if (step.op == SF || step.op == SB) {
      const bool forward = step.op == SF;
      const int next = forward ? k + 1 : k - 1;
      if (next < 0 || next > last || s_.stage_of(next) == stage) return wrong();
      if (!seen.contains({forward ? F : B, step.chunk, step.micro})) return wrong();
      const int to = s_.stage_of(next);
      auto& queue = queues_[{stage, to, forward}];
      if (buffers_ > 0 ? std::ssize(queue) >= buffers_ : !is_receiving(to, stage, forward)) {
        return false;
      }
      queue.push_back({next, step.micro, forward});
      ++at_[i];
      if (!seen.insert(step).second) return wrong();
      if (buffers_ == 0) this->step(to);
      return true;
    }
    if (step.op == RF || step.op == RB) {
      const bool forward = step.op == RF;
      const int before = forward ? k - 1 : k + 1;
      if (before < 0 || before > last || s_.stage_of(before) == stage) return wrong();
      auto& queue = queues_[{s_.stage_of(before), stage, forward}];
      if (queue.empty()) return false;
      if (queue.front() != Parcel{k, step.micro, forward}) return wrong();
      queue.pop_front();
    } else if (step.op == W) {
      if (!s_.splits_weight || !seen.contains({B, step.chunk, step.micro})) return wrong();
    } else {
      const bool forward = step.op == F;
      if (!forward && !seen.contains({F, step.chunk, step.micro})) return wrong();
      const int before = forward ? k - 1 : k + 1;
      if (before >= 0 && before <= last) {
        const bool here = s_.stage_of(before) == stage;
        const PipelineStep needed = here ? PipelineStep{step.op, s_.chunk_of(before), step.micro}
                                         : PipelineStep{forward ? RF : RB, step.chunk, step.micro};
        if (!seen.contains(needed)) return wrong();
      }
    }
    if (step.op == B || step.op == W) {
      int& most = most_[{stage, step.op, step.chunk}];
      if (step.micro < most) return wrong();
      most = step.micro;
    }
    if (!seen.insert(step).second) return wrong();
    ++at_[i];
    return true;
  }

  /// Whether `stage` stands at any receive from `from` in this direction.
  bool is_receiving(int stage, int from, bool forward) const {
    const size_t i = static_cast<size_t>(stage);
    if (at_[i] == s_.steps[i].size()) return false;
    const PipelineStep step = s_.steps[i][at_[i]];
    if (step.op != (forward ? RF : RB)) return false;
    const int k = s_.virtual_stage(stage, step.chunk);
    const int before = forward ? k - 1 : k + 1;
    return before >= 0 && before < s_.virtual_stages() && s_.stage_of(before) == from;
  }

  const PipelineSchedule& s_;
  int buffers_;
  bool right_ = true;
  std::vector<size_t> at_;
  std::vector<std::set<PipelineStep>> seen_;
  std::map<std::tuple<int, int, bool>, std::deque<Parcel>> queues_;
  std::map<std::tuple<int, PipelineOp, int>, int> most_;
};

/// A schedule of a random kind, with a few steps moved, doubled, lost or changed, or none.
PipelineSchedule random_schedule(std::mt19937& random) {
  const auto draw = [&](int count) {
    return static_cast<int>(random() % static_cast<unsigned>(count));
  };
  const std::string name = pipeline_schedules()[static_cast<size_t>(draw(5))];
  const bool chunks = name == "interleaved" || name == "zero-bubble-v";
  PipelineSchedule schedule = plan_pipeline({name, 1 + draw(4), chunks ? 2 : 1, draw(4)});
  const bool again = draw(3) == 0;  // the messages are set anew after the changes
  if (again) {
    for (auto& steps : schedule.steps) {
      std::erase_if(steps, [](const PipelineStep& step) { return !is_compute(step.op); });
    }
  }
  for (int changes = draw(4); changes > 0; --changes) {
    auto& steps = schedule.steps[static_cast<size_t>(draw(schedule.stages))];
    if (steps.empty()) continue;
    const int size = static_cast<int>(steps.size());
    const int i = draw(size);
    const PipelineStep step = steps[static_cast<size_t>(i)];
    const int kind = draw(8);
    if (kind < 4) {
      std::swap(steps[static_cast<size_t>(i)], steps[static_cast<size_t>((i + 1) % size)]);
    } else if (kind < 6) {
      steps.erase(steps.begin() + i);
      steps.insert(steps.begin() + draw(size), step);
    } else if (kind == 6) {
      steps.erase(steps.begin() + i);
    } else {
      steps.insert(steps.begin() + draw(size),
                   {static_cast<PipelineOp>(draw(7)), step.chunk, step.micro});
    }
  }
  return again ? with_communication(schedule) : schedule;
}

TEST(PipelineCheck, AgreesWithAnExecutorOnTenThousandSchedules) {
  std::mt19937 random(20231130);
  int right = 0;
  for (int i = 0; i < 10'000; ++i) {
    const PipelineSchedule schedule = random_schedule(random);
    const int buffers = static_cast<int>(random() % 4);
    const std::string said = refusal(schedule, buffers);
    const bool runs = Executor(schedule, buffers, random).right();
    std::string text;
    for (const auto& steps : schedule.steps) {
      for (const PipelineStep& step : steps) text += text_of(step, true) + " ";
      text += "\n";
    }
    ASSERT_EQ(said.empty(), runs) << i << ", " << buffers << " buffers: " << said << "\n" << text;
    right += runs;
  }
  // Both answers are common.
  EXPECT_GT(right, 2'000);
  EXPECT_LT(right, 8'000);
}

}  // namespace
}  // namespace lockstep::plan
