/// Saves checkpoints of a run while it goes on.
///
///   save      every rank copies what it writes (the pause); ls-save writes the copy to its part
///             file; when all have, rank 0 writes index and manifest, and the folder gets its name
///   advance   between steps: what can go on without waiting goes on
///   finish    until there is nothing under way
///
/// One save at a time: the next one waits for it. What goes wrong on any rank is an error of the
/// next call on all of them, once; what was complete stays, the run's state is as it was, and the
/// next save starts anew.
///
/// Moves   each element of the state once to disk        test: Checkpointer.EveryByteIsWrittenOnce
/// Holds   asynchronously, a copy of what this rank writes: plan::checkpoint_bytes
///                                                       test: Checkpointer.HoldsTheCopyOnly
/// Source  docs/concepts/checkpoints.md
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/background.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/checkpoint/part_file.h"
#include "lockstep/memory/account.h"
#include "lockstep/train/saved_values.h"

namespace lockstep {

struct CheckpointerOptions {
  /// From a copy, on a thread beside training; else `save` writes, and returns when all is done.
  bool async = true;
  /// How long a save may take once somebody waits for it.
  double timeout_s = 600;
  /// Called on rank 0 when a checkpoint has become complete.
  std::function<void(const std::string& folder)> completed = {};
  /// Tests plant faults here; called where a part file is about to be written.
  std::function<void()> before_write = {};
};

/// What a checkpoint holds beside the values.
struct SavedRun {
  int64_t step = 0;
  plan::TrainConfig config;
  int64_t vocab = 0;
  std::string identity;
  nlohmann::json state;    // what the run goes on from, alike on all ranks
  std::string rank_state;  // of this rank, a user's own; empty: none
};

/// How the last complete save went, on this rank.
struct SaveTimes {
  double pause_seconds = 0;  // in which training stood still
  double write_seconds = 0;  // of the part file, from its creation to durable
  int64_t bytes = 0;         // of it
  int64_t saves = 0;         // that are complete
};

class Checkpointer {
 public:
  /// `state`, `average` (may be null) and `context` must outlive this.
  Checkpointer(const CheckpointerOptions& options, ModelState& state, ParamAverage* average,
               const RankContext& context);
  ~Checkpointer();

  /// Takes the memory for copies now, before the first save needs it.
  void reserve();
  /// All ranks call it, between steps. `folder`: what the checkpoint will be. Throws StateError:
  /// this save cannot begin, or the one before failed.
  void save(const std::string& folder, const SavedRun& run);
  /// Something is under way, on all ranks alike.
  bool pending() const { return phase_ != Phase::idle; }
  /// This rank has not done its part of it yet.
  bool busy() const { return background_.busy(); }
  /// All ranks call it when none is busy. Throws StateError: the save failed.
  void advance();
  /// All ranks call it. Throws StateError: it failed, or did not end within the timeout.
  void finish();

  const SaveTimes& times() const { return times_; }
  /// The bytes of the copy.
  int64_t copy_bytes() const;

 private:
  enum class Phase { idle, writing, committing };
  struct Job;

  std::shared_ptr<Job> make_job(const std::string& folder, const SavedRun& run);
  void copy_values(Job& job);
  void list_slices(Job& job);
  void agree(const std::string& mine);
  void give_up(bool done);

  CheckpointerOptions options_;
  const RankContext& context_;
  std::vector<HeldRun> runs_;      // that this rank writes
  std::shared_ptr<float[]> copy_;  // of their values, back to back
  std::optional<memory::Counted> counted_;
  std::shared_ptr<Job> job_;  // under way
  Phase phase_ = Phase::idle;
  checkpoints::Background background_;
  SaveTimes times_;
};

}  // namespace lockstep
