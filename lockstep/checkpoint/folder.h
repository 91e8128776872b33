/// The folders of a run's checkpoints: which are there and whole, how one comes to be, which go.
///
///   RUN/checkpoints/step_00000020.tmp-PID-N  being written: nobody reads it
///   RUN/checkpoints/step_00000020            complete: renamed when its manifest is durable
///
/// A crash at any moment leaves the complete ones as they are. There is no file that says which is
/// the newest: the manifests do.
///
/// Source  docs/concepts/checkpoints.md
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/checkpoint/manifest.h"

namespace lockstep::checkpoints {

struct Found {
  std::string folder;
  int64_t step = 0;
};

/// RUN/checkpoints.
std::string checkpoints_of(const std::string& run_folder);
/// "step_00000020".
std::string folder_name(int64_t step);

/// The checkpoints of a run that have a manifest, newest first. Empty where there are none.
std::vector<Found> complete_checkpoints(const std::string& run_folder);

/// What to do where `found[damaged]` cannot be used: a line for an error's end; empty: there is no
/// older one.
std::string hint_at_older(const std::vector<Found>& found, size_t damaged);

/// Whether the folder holds a manifest: is a checkpoint, not a run or anything else.
bool is_checkpoint(const std::string& folder);

/// The folder that `path` stands for: itself, or the newest complete checkpoint of a run. Throws
/// StateError: it is neither, and what it may be.
std::string checkpoint_at(const std::string& path);

/// Throw StateError naming the file and what is wrong with it.
Manifest read_manifest(const std::string& folder);
Index read_index(const std::string& folder, const Manifest& manifest);

/// Checkpoints of later steps than `step`, which a run that goes on from there has left: they get
/// another name, that is no checkpoint's, and keep their contents. Their folders as they are then.
std::vector<std::string> set_aside(const std::string& run_folder, int64_t step);

/// What is written before it is a checkpoint: a folder beside `target` for all ranks' parts. Throws
/// StateError naming folder and reason.
std::string begin_folder(const std::string& target);
/// Index and manifest are added to the folder that `begin_folder` made, and it gets its name. An
/// older folder of that name is replaced. Fills in what the manifest says of the index. Throws
/// StateError; no checkpoint has changed then.
void commit_folder(const std::string& unfinished, const std::string& target, Manifest manifest,
                   const Index& index);
/// Whatever is left of it. Never throws.
void discard_folder(const std::string& unfinished) noexcept;

/// Removes unfinished checkpoints of processes that are gone.
void remove_unfinished(const std::string& run_folder);

/// Removes all but the `keep` newest and those whose step is a multiple of `keep_every` (0: none).
/// What it removed, oldest first. A folder loses its manifest first: half of one is none.
std::vector<Found> prune(const std::string& run_folder, int64_t keep, int64_t keep_every);
/// What it would remove.
std::vector<Found> to_prune(const std::string& run_folder, int64_t keep, int64_t keep_every);

}  // namespace lockstep::checkpoints
