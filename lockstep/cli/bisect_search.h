/// Finds where two runs part: first in what they have recorded, then in replays of the stretch
/// between the newest state that both are known to have shared and the first figure that differs.
///
///   records   the first step whose loss, norm or digest, or whose checkpoint differs: high
///   starts    the newest step before it at which both can begin and are equal, in every
///             tensor if both have a checkpoint there: low
///   replay 1  low .. high with a digest after each step: the step, and whether each run comes to
///             what it has recorded
///   replay 2  the steps up to that one with witnesses, `window` of them: the first thing that
///             differs in the order of computation; as long as the first of them already
///             differs, again for those before. A stretch of at most `window` steps has them in
///             replay 1
///
/// Where the replays agree with each other, at least one run has not been computed as it is
/// computed here: which one, from which step, and, where a checkpoint holds it, in which element.
///
/// Moves   each run's steps low .. high twice; three times and more where `window` was too short
/// Holds   witnesses of `window` steps; two checkpoints a replay
/// Source  docs/concepts/bisect.md
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/diff.h"
#include "lockstep/cli/bisect_record.h"
#include "lockstep/cli/bisect_replay.h"
#include "lockstep/cli/bisect_settings.h"
#include "lockstep/report/run_difference.h"

namespace lockstep::cli {

/// A figure of a step in two records.
struct FigureDifference {
  int64_t step = 0;
  std::string what;  // loss | grad_norm | param_digest | checkpoint
  StepFigures a;     // of a checkpoint: its digest alone
  StepFigures b;
};

/// What differs between two checkpoints of one step: its first tensor, or what else.
struct StateDifference {
  int64_t step = 0;
  std::optional<checkpoints::TensorDifference> tensor;
  std::optional<checkpoints::OtherDifference> other;
};

/// Of a run against its replay.
struct Reproduction {
  int64_t from = 0;
  int64_t to = 0;
  int ranks = 0;                           // of the replay
  std::string identity;                    // of here
  std::optional<FigureDifference> figure;  // the first: a is the record's, b the replay's
  std::optional<StateDifference> state;    // of the first checkpoint in which they differ, likewise
  bool reproduces() const { return !figure && !state; }
};

struct Bisection {
  enum class Outcome {
    equal,           // as far as both have recorded
    found,           // replays differ: `difference`
    state,           // what both begin from differs: `start`
    not_reproduced,  // replays agree, and a record differs from its own
  };
  Outcome outcome = Outcome::equal;
  int64_t first_common = 0;  // steps that both have recorded
  int64_t last_common = 0;
  int64_t digests = 0;  // of these that were compared
  std::vector<SettingDifference> settings;
  std::optional<FigureDifference> recorded;
  int64_t low = 0;  // what was replayed: steps low + 1 .. high
  int64_t high = 0;
  std::optional<StateDifference> start;
  std::optional<Reproduction> a;
  std::optional<Reproduction> b;
  std::optional<FigureDifference> replayed;  // the first figure in which replays differ
  std::optional<report::RunDifference> difference;
  std::vector<std::string> notes;
};

struct BisectOptions {
  int64_t window = 2;      // steps with witnesses at once
  std::string fault_in_b;  // that is planted in replays of B (base/planted_fault.h); for tests
  std::function<void(const std::string&)> say;  // how it goes
};

/// Throws UsageError: models, batches or sums that make runs incomparable; no step that both have.
Bisection bisect(const RunRecord& a, const RunRecord& b, Replays& replays,
                 const BisectOptions& options);

/// One run against itself: replayed from its newest checkpoint at or before `from` (-1: the newest
/// that has steps behind it) to `to` (-1: its last step). Throws UsageError: there is no such
/// stretch.
Reproduction replay(const RunRecord& run, int64_t from, int64_t to, Replays& replays);

}  // namespace lockstep::cli
