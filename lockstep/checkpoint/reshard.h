/// A checkpoint in another number of files, of whole logical tensors instead of a layout's grains:
/// to move it, to look at it with other programs, to read it with as many readers as there are
/// files. What a run goes on from it is the same: any layout loads either with the same bits.
///
///   saved by 2 x 2 ranks      param wte @0 [0:4096] ... | @1 ... | state, average ...
///   in 3 files                all elements, tensor after tensor, cut into 3 equal runs
///
/// Moves   every byte once from disk, once to disk    test: Reshard.ReadsAndWritesEachElementOnce
/// Holds   1 Mi elements, and lists of runs of the tensors that were cut
#pragma once

#include <string>

#include "lockstep/checkpoint/manifest.h"

namespace lockstep::checkpoints {

/// Writes the checkpoint in `from` as `files` parts to the folder `to`, which must not be there
/// yet. All that is read is proven: throws StateError naming the file that is damaged, and leaves
/// nothing at `to` then. UsageError: `files` is not 1 to 65,536, or `to` is there.
Manifest reshard(const std::string& from, const std::string& to, int files);

}  // namespace lockstep::checkpoints
