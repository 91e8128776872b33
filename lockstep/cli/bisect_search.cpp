#include "lockstep/cli/bisect_search.h"

#include <algorithm>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/files/witness_file.h"
#include "lockstep/plan/optimizers.h"

namespace lockstep::cli {
namespace {

/// Where replays begin, and the step up to which the two runs are the same.
struct Beginning {
  RunStart a;
  RunStart b;
  int64_t low = 0;
};

StepFigures digest_alone(const std::string& digest) {
  return {.loss = 0, .grad_norm = 0, .param_digest = digest};
}

bool differ(const std::string& a, const std::string& b) {
  return !a.empty() && !b.empty() && a != b;
}

/// The first step, of those behind `after`, at which both have a figure or digest and it differs.
std::optional<FigureDifference> first_difference(const std::map<int64_t, StepFigures>& a,
                                                 const std::map<int64_t, StepFigures>& b,
                                                 int64_t after) {
  for (auto at = a.upper_bound(after); at != a.end(); ++at) {
    const auto other = b.find(at->first);
    if (other == b.end()) continue;
    const std::string what = first_unequal(at->second, other->second);
    if (!what.empty()) {
      return FigureDifference{.step = at->first, .what = what, .a = at->second, .b = other->second};
    }
  }
  return std::nullopt;
}

std::string steps_text(int64_t first, int64_t last) {
  return first == last ? base::str("step ", last) : base::str("steps ", first, " to ", last);
}

std::optional<StateDifference> state_difference(int64_t step, const std::string& a,
                                                const std::string& b) {
  const checkpoints::Difference found = checkpoints::compare(a, b);
  if (!found.tensors.empty())
    return StateDifference{.step = step, .tensor = found.tensors.front(), .other = {}};
  if (!found.shapes.empty())
    return StateDifference{.step = step, .tensor = {}, .other = found.shapes.front()};
  for (const checkpoints::OtherDifference& other : found.state) {
    // Where the samples lie is a setting; that they are the same ones, figures say.
    if (other.what.starts_with("cursor")) continue;
    return StateDifference{.step = step, .tensor = {}, .other = other};
  }
  return std::nullopt;
}

class Search {
 public:
  Search(const RunRecord& a, const RunRecord& b, Replays& replays, const BisectOptions& options)
      : a_(a), b_(b), replays_(replays), options_(options) {}

  Bisection run() {
    require_comparable(a_, b_);
    find_common_steps();
    result_.settings = settings_that_differ(a_, b_);
    result_.recorded = recorded_difference();
    if (!result_.recorded) return std::move(result_);
    const std::optional<Beginning> beginning = find_beginning();
    if (beginning) {
      find_in_replays(*beginning);
    } else {
      see_who_came_there();
    }
    return std::move(result_);
  }

 private:
  void say(const std::string& line) const {
    if (options_.say) options_.say(line);
  }

  void find_common_steps() {
    for (const auto& [step, figures] : a_.steps) {
      const auto other = b_.steps.find(step);
      if (other == b_.steps.end()) continue;
      if (result_.first_common == 0) result_.first_common = step;
      result_.last_common = step;
      if (!figures.param_digest.empty() && !other->second.param_digest.empty()) ++result_.digests;
    }
    if (result_.first_common > 0) return;
    throw UsageError(base::str("the runs have no step in common: ", a_.folder, " has steps ",
                               a_.steps.begin()->first, " to ", a_.steps.rbegin()->first, ", ",
                               b_.folder, " ", b_.steps.begin()->first, " to ",
                               b_.steps.rbegin()->first, "."));
  }

  /// Of figures, and of checkpoints by their digests; where all of these are equal, of the newest
  /// checkpoint that both have in every tensor.
  std::optional<FigureDifference> recorded_difference() {
    std::optional<FigureDifference> found = first_difference(a_.steps, b_.steps, 0);
    const RunStart* newest = nullptr;
    for (const RunStart& of_a : a_.starts) {
      const RunStart* const of_b = b_.start_at(of_a.step);
      if (of_b == nullptr || of_a.folder.empty() || of_b->folder.empty()) continue;
      if (found && found->step <= of_a.step) break;
      newest = &of_a;
      if (differ(of_a.param_digest, of_b->param_digest)) return of_checkpoint(of_a, *of_b);
      ++result_.digests;
    }
    if (found || newest == nullptr) return found;
    const RunStart& of_b = *b_.start_at(newest->step);
    if (!state_difference(newest->step, newest->folder, of_b.folder)) return std::nullopt;
    return of_checkpoint(*newest, of_b);
  }

  static FigureDifference of_checkpoint(const RunStart& a, const RunStart& b) {
    return {.step = a.step,
            .what = "checkpoint",
            .a = digest_alone(a.param_digest),
            .b = digest_alone(b.param_digest)};
  }

  /// Steps for which both have a state, newest first, then those for which one has.
  std::vector<int64_t> candidates() const {
    std::set<int64_t> common, of_one;
    for (const RunRecord* run : {&a_, &b_}) {
      for (const RunStart& start : run->starts) {
        const bool both = a_.start_at(start.step) != nullptr && b_.start_at(start.step) != nullptr;
        (both ? common : of_one).insert(start.step);
      }
    }
    std::vector<int64_t> steps(common.rbegin(), common.rend());
    steps.insert(steps.end(), of_one.rbegin(), of_one.rend());
    return steps;
  }

  /// The run's state after so many steps: its own, or what a replay comes to; nothing: it has no
  /// older one.
  std::optional<RunStart> state_at(const RunRecord& run, int64_t step) {
    const RunStart* const from = run.start_before(step);
    if (from == nullptr) return std::nullopt;
    if (from->step == step) return *from;
    say(base::str("replaying ", steps_text(from->step + 1, step), " of ", run.folder));
    const Replayed there = replay_of(run, *from, step, -1);
    return RunStart{
        .step = step, .folder = there.checkpoint, .param_digest = "", .world = there.ranks};
  }

  /// Nothing: what differs is what the runs begin with, and that is the result.
  std::optional<Beginning> find_beginning() {
    result_.high = result_.recorded->step;
    for (const int64_t step : candidates()) {
      if (step > result_.high) continue;
      const std::optional<RunStart> a = state_at(a_, step), b = state_at(b_, step);
      if (!a || !b) continue;
      std::optional<StateDifference> state;
      if (!a->folder.empty() && !b->folder.empty()) {
        state = state_difference(step, a->folder, b->folder);
      }
      if (state) {
        // Nearer to the cause than what was seen in the records.
        result_.high = step;
        result_.start = state;
      } else if (step < result_.high) {
        return Beginning{.a = *a, .b = *b, .low = step};
      }
    }
    if (result_.start) {
      result_.outcome = Bisection::Outcome::state;
      return std::nullopt;
    }
    throw StateError(base::str(
        "the runs differ at step ", result_.high,
        ", and there is no state before it that both can "
        "be replayed from: a run that began at another's checkpoint needs it still to be there."));
  }

  Replayed replay_of(const RunRecord& run, const RunStart& from, int64_t to, int64_t witness_from) {
    const bool is_b = &run == &b_;
    return replays_.run(is_b ? "b" : "a", {.run = &run,
                                           .from = from,
                                           .to = to,
                                           .witness_from = witness_from,
                                           .fault = is_b ? options_.fault_in_b : ""});
  }

  Reproduction reproduced(const RunRecord& run, const RunStart& from, const Replayed& replayed);

  /// Of a state in which the runs differ: which of them comes to it from an older one of its own.
  void see_who_came_there() {
    const auto of = [this](const RunRecord& run) -> std::optional<Reproduction> {
      const RunStart* const from = run.start_before(result_.high - 1);
      if (from == nullptr) return std::nullopt;
      say(base::str("replaying ", steps_text(from->step + 1, result_.high), " of ", run.folder));
      return reproduced(run, *from, replay_of(run, *from, result_.high, -1));
    };
    result_.a = of(a_);
    result_.b = of(b_);
  }

  void find_in_replays(const Beginning& at) {
    result_.low = at.low;
    // A short stretch has witnesses at once.
    const bool is_short = result_.high - at.low <= options_.window;
    const int64_t witness_from = is_short ? at.low : -1;
    say(base::str("replaying ", steps_text(at.low + 1, result_.high), " of both"));
    const Replayed a = replay_of(a_, at.a, result_.high, witness_from);
    const Replayed b = replay_of(b_, at.b, result_.high, witness_from);
    result_.a = reproduced(a_, at.a, a);
    result_.b = reproduced(b_, at.b, b);
    result_.replayed = first_difference(a.steps, b.steps, at.low);
    if (!result_.replayed) {
      // Parameters and figures are equal; moments need not be.
      const auto state = state_difference(result_.high, a.checkpoint, b.checkpoint);
      if (!state) {
        result_.outcome = Bisection::Outcome::not_reproduced;
        return;
      }
      result_.replayed =
          FigureDifference{.step = result_.high, .what = "checkpoint", .a = {}, .b = {}};
    }
    result_.outcome = Bisection::Outcome::found;
    if (is_short) {
      compare_witnesses(a, b, at.low + 1, result_.replayed->step);
    } else {
      find_first(at, a, b);
    }
  }

  /// The first thing that differs, in and before the step in which a figure does.
  void find_first(const Beginning& at, const Replayed& a, const Replayed& b) {
    int64_t last = result_.replayed->step;
    while (last > at.low) {
      const int64_t first = std::max(at.low + 1, last - options_.window + 1);
      say(base::str("replaying with witnesses of ", steps_text(first, last)));
      const Replayed of_a = replay_of(a_, at.a, last, first - 1);
      const Replayed of_b = replay_of(b_, at.b, last, first - 1);
      note_if_other("A", a, of_a);
      note_if_other("B", b, of_b);
      if (!compare_witnesses(of_a, of_b, first, last)) return;
      last = first - 1;
    }
  }

  /// Takes the first difference into the result, if there is one. Whether it is in the first of
  /// these steps, so that those before may differ, too.
  bool compare_witnesses(const Replayed& a, const Replayed& b, int64_t first, int64_t last) {
    const auto optimizer = plan::parse_optimizer(a_.settings_of(last).optim.name);
    const report::RunComparison found =
        report::compare_runs(files::read_witness(a.witness), files::read_witness(b.witness), first,
                             last, plan::traits_of(optimizer).moments);
    for (const std::string& missing : found.missing) {
      if (result_.notes.size() < 4) result_.notes.push_back("missing: " + missing);
    }
    if (found.difference) result_.difference = found.difference;
    return found.difference && found.equal_steps == 0;
  }

  void note_if_other(const char* name, const Replayed& once, const Replayed& again) {
    if (const auto other = first_difference(once.steps, again.steps, 0)) {
      result_.notes.push_back(base::str("two replays of ", name, " differ from step ", other->step,
                                        " on (", other->what,
                                        "): what it computes is not the same each time"));
    }
  }

  const RunRecord& a_;
  const RunRecord& b_;
  Replays& replays_;
  const BisectOptions& options_;
  Bisection result_;
};

/// Checkpoints behind `from`, oldest first: where one is not the state that the replay came to, it
/// is replayed up to there for what differs.
std::optional<StateDifference> first_other_state(const RunRecord& run, const RunStart& from,
                                                 const Replayed& replayed, int64_t to,
                                                 const std::function<Replayed(int64_t)>& up_to) {
  for (const RunStart& saved : run.starts) {
    if (saved.step <= from.step || saved.step > to || saved.folder.empty()) continue;
    if (saved.step == to) return state_difference(to, saved.folder, replayed.checkpoint);
    const auto figures = replayed.steps.find(saved.step);
    if (figures == replayed.steps.end()) continue;
    if (!differ(saved.param_digest, figures->second.param_digest)) continue;
    return state_difference(saved.step, saved.folder, up_to(saved.step).checkpoint);
  }
  return std::nullopt;
}

Reproduction reproduction_of(const RunRecord& run, const RunStart& from, int64_t to,
                             const Replayed& replayed,
                             const std::function<Replayed(int64_t)>& up_to) {
  return {.from = from.step,
          .to = to,
          .ranks = replayed.ranks,
          .identity = replayed.identity,
          .figure = first_difference(run.steps, replayed.steps, from.step),
          .state = first_other_state(run, from, replayed, to, up_to)};
}

Reproduction Search::reproduced(const RunRecord& run, const RunStart& from,
                                const Replayed& replayed) {
  return reproduction_of(run, from, result_.high, replayed,
                         [&](int64_t step) { return replay_of(run, from, step, -1); });
}

}  // namespace

Bisection bisect(const RunRecord& a, const RunRecord& b, Replays& replays,
                 const BisectOptions& options) {
  return Search(a, b, replays, options).run();
}

Reproduction replay(const RunRecord& run, int64_t from, int64_t to, Replays& replays) {
  const int64_t last = run.steps.rbegin()->first;
  const int64_t end = to < 0 ? last : to;
  if (end > last) {
    throw UsageError(base::str(run.folder, " has recorded ", last, " steps: --to ", end,
                               " has nothing to be compared with.\n  This fits: --to ", last));
  }
  const RunStart* const start = run.start_before(from < 0 ? end - 1 : std::min(from, end - 1));
  if (start == nullptr) {
    throw UsageError(base::str(run.folder, " has no state to replay from before step ",
                               from < 0 ? end : from, "."));
  }
  const auto up_to = [&](int64_t step) {
    return replays.run("a", {.run = &run, .from = *start, .to = step, .fault = {}});
  };
  return reproduction_of(run, *start, end, up_to(end), up_to);
}

}  // namespace lockstep::cli
