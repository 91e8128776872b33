/// What a run that goes on from a checkpoint may change of the settings it was saved with.
///
///   freely     who computes and what is kept of it: layout, engine, memory, logs, checkpoints
///   if named   it can be done and makes another run from here on: optim.lr, run.steps, ...; only
///              where run.may_change names the key, so that it never happens by accident
///   never      the saved state, or the samples already seen, belong to the old value
///
/// Every key of plan/train_config.h is in one table. The numeric identity is compared by the ranks,
/// who know which kernels they have.
///
/// Source  docs/concepts/resume.md
#pragma once

#include <string>
#include <vector>

#include "lockstep/plan/train_config.h"

namespace lockstep::plan {

enum class MayChange { freely, if_named, never };

struct ResumeRule {
  const char* key;
  MayChange may;
  const char* why;  // of `never`: what belongs to the old value; else empty
};

/// In the order of `config_keys`.
const std::vector<ResumeRule>& resume_rules();

/// What run.may_change names for other kernels or another processor than those of the run so far.
inline constexpr const char* kIdentity = "identity";

/// The names in run.may_change. Throws UsageError: no such key (with the nearest), or one that can
/// never change.
std::vector<std::string> may_change_of(const TrainConfig& config);

/// Grains that `now` leaves open ("auto") are those of the run it goes on with: another layout then
/// computes the same.
void keep_grains(TrainConfig& now, const TrainConfig& saved);

/// Throws UsageError unless a run of the settings `saved` may go on with `now`: every key that
/// differs, both values, and what to do. `from`: the run or checkpoint, as it was asked for.
void check_resume(const TrainConfig& saved, const TrainConfig& now, const std::string& from);

/// For ranks. Throws UsageError unless a run of the numeric identity `saved` may go on with `now`
/// (NumericIdentity::text), the one of `config`: which parts differ, and what to do.
void check_identity(const std::string& saved, const std::string& now, const TrainConfig& config);

}  // namespace lockstep::plan
