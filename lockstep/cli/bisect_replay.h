/// Computes stretches of runs again, in a folder of their own: the run's folder is only read.
///
/// A replay has the settings of the run and, unless told otherwise, its layout; where the run went
/// on with other settings the replay does, too. What changes no bit is left out: evaluations,
/// TensorBoard, traces. Its log has a digest of the parameters after every step, and where it ends
/// it leaves a checkpoint.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "lockstep/cli/bisect_record.h"
#include "lockstep/cli/work_folder.h"

namespace lockstep::cli {

struct ReplayOptions {
  int ranks = 0;        // of all replays, data-parallel; 0: those of the run, in its layout
  int most_ranks = 64;  // that a replay may have
  std::string keep;     // a folder for what replays leave; empty: it goes
};

/// A stretch of a run.
struct Stretch {
  const RunRecord* run = nullptr;
  RunStart from;
  int64_t to = 0;  // steps done
  int64_t witness_from =
      -1;             // what ranks compute from the step after so many on is written; -1: no
  std::string fault;  // that is planted in the ranks (base/planted_fault.h); empty: none
};

struct Replayed {
  std::map<int64_t, StepFigures> steps;
  std::string checkpoint;  // of step `to`
  std::string witness;     // folder, for files::read_witness
  std::string identity;    // numeric, of here
  int ranks = 0;           // of the last step
};

class Replays {
 public:
  /// `work` must outlive this.
  Replays(const WorkFolder& work, const ReplayOptions& options);

  /// Throws UsageError: the layout wants more ranks than may be, or cannot be had here; what the
  /// ranks' job ended with, if they did not get there.
  Replayed run(const std::string& name, const Stretch& stretch);

  /// The layout of the replay of a step: settings, and ranks.
  plan::TrainConfig layout_of(const RunRecord& run, int64_t step, int& ranks) const;

 private:
  struct Part;  // of a stretch, with the same settings and ranks
  std::string run_part(const Part& part, const Stretch& stretch, Replayed& replayed);

  std::string folder_;
  ReplayOptions options_;
  int count_ = 0;
};

}  // namespace lockstep::cli
