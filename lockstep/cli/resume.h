/// What a run goes on from, and with which settings.
///
///   --resume RUN          in that folder, from its newest checkpoint; where it has none, from the
///                         checkpoint that it began at, or from the start
///   --resume CHECKPOINT   a new run that begins there
///
/// Without a preset or file the settings are those of what it goes on from; with one they are
/// compared (plan/resume_rules.h). The ranks decide once more which checkpoint is the newest, at
/// every start: worker/resume_from.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/cli/config.h"

namespace lockstep::cli {

struct ResumePoint {
  std::string asked;           // as it was asked for
  std::string run_folder;      // that goes on; empty: a new run begins at the checkpoint
  std::string checkpoint;      // its folder; empty: there is none yet
  int64_t step = 0;            // of the checkpoint
  int world = 0;               // ranks that saved it; 0: unknown
  plan::TrainConfig saved;     // that a difference is one to
  plan::TrainConfig settings;  // without a preset or file: those to go on with
};

/// What `path` stands for. `fall_back`: past checkpoints whose manifest is damaged. Throws
/// UsageError: neither run nor checkpoint, with what was meant perhaps; StateError: damaged.
ResumePoint find_resume_point(const std::string& path, bool fall_back);

struct Start {
  ResolvedConfig resolved;
  std::optional<ResumePoint> from;  // nothing: a run that begins anew
};

/// The settings of a run, and what it goes on from if run.resume names it. Throws what
/// resolve_config does, and UsageError: settings that a resumed run cannot have.
Start resolve_start(ConfigSources sources);

/// Whether the run has made its last step and its files are written: there is nothing to go on
/// with.
bool is_over(const ResumePoint& from, const plan::TrainConfig& config);

/// "goes on after step 20 of 40 (...)": for people.
std::string describe(const ResumePoint& from, const plan::TrainConfig& config);

}  // namespace lockstep::cli
