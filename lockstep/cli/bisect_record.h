/// What a run has left of itself: settings, the figures of its steps, checkpoints. Files are read,
/// nothing is started.
///
///   config.json, config_before_step_N.json    settings, and those of the steps up to N
///   metrics.jsonl                              loss, grad_norm, and param_digest where there is
///   one checkpoints/                               manifests alone summary.json identity, ranks,
///   last digest, once it has ended
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/plan/train_config.h"

namespace lockstep::cli {

/// Of a step. What comes back from the file has all its digits.
struct StepFigures {
  double loss = 0;  // NaN: no finite number
  double grad_norm = 0;
  std::string param_digest;  // of the parameters after it; empty: was not taken
};

/// "loss" or what else differs first between two of the same step; empty: nothing that both know.
std::string first_unequal(const StepFigures& a, const StepFigures& b);

/// A state that the run can be gone on with from.
struct RunStart {
  int64_t step = 0;          // steps done
  std::string folder;        // of the checkpoint; empty: the beginning of the run
  std::string param_digest;  // empty: unknown
  int world = 0;             // ranks that saved it
};

struct RunRecord {
  std::string folder;
  /// By the number of steps behind which they hold.
  std::map<int64_t, plan::TrainConfig> settings;
  std::map<int64_t, StepFigures> steps;  // by step, from 1
  std::vector<RunStart> starts;          // oldest first
  std::string identity;                  // numeric; empty: unknown
  int ranks = 0;                         // of the end of the run; 0: unknown

  const plan::TrainConfig& settings_of(int64_t step) const;  // from 1
  /// Ranks that made the step, as far as is known; at least 1.
  int ranks_of(int64_t step) const;
  /// The last step of those behind `step` that the same ranks made with the same settings, as far
  /// as is known.
  int64_t alike_until(int64_t step) const;
  /// The newest one of at most so many steps; null: there is none.
  const RunStart* start_before(int64_t step) const;
  /// The one of exactly so many; null: there is none.
  const RunStart* start_at(int64_t step) const;
};

/// Throws UsageError: no run folder, with what was meant perhaps; StateError: a file of it that
/// cannot be used, and why. A checkpoint that cannot be used is left out.
RunRecord read_run(const std::string& folder);

/// The figures of metrics.jsonl: those of the whole lines. Throws StateError: a line that is no
/// step's, naming it.
std::map<int64_t, StepFigures> read_figures(const std::string& path);

}  // namespace lockstep::cli
