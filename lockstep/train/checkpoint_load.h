/// Fills a run's state from a checkpoint, whatever layout that was saved on.
///
/// Each rank reads the bytes that it holds and no others; ranks that hold one replica together
/// prove all of every file (checkpoint/reader.h). Values in memory are put in place when the whole
/// is proven: a damaged checkpoint changes nothing.
///
/// Moves   each byte of the state once a replica; of parameters that several parts of a model hold,
///         once a part
///                               test: Checkpoint.EachByteIsWrittenOnceAndReadOnceAReplica
/// Holds   once more what this rank holds, for as long as it takes
/// Source  docs/concepts/checkpoints.md
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/checkpoint/manifest.h"
#include "lockstep/train/model_state.h"
#include "lockstep/train/param_average.h"

namespace lockstep {

struct LoadedCheckpoint {
  checkpoints::Manifest manifest;
  int64_t bytes_read = 0;  // of values, by this rank
  double seconds = 0;
};

/// All ranks call it, outside of any step; `average` may be null. Throws on all ranks StateError
/// naming file and reason: not whole, damaged, of another model or optimizer.
LoadedCheckpoint load_checkpoint(const std::string& folder, ModelState& state,
                                 ParamAverage* average, const RankContext& context);

}  // namespace lockstep
