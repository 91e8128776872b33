/// Who writes what of a checkpoint: ranks that hold the same pieces each write an equal part.
///
/// Moves   each element is written by one rank; a share is at most a chunk of 256 elements off the
///         mean                                 test: WriteShare.EveryElementOnceAndEvenly
#pragma once

#include <vector>

#include "lockstep/plan/shard_layout.h"

namespace lockstep::plan {

/// What writer `writer` of `writers` that all hold `pieces` writes of them, cut at multiples of 256
/// elements of a parameter. Order and units stay.
std::vector<Piece> write_share(const std::vector<Piece>& pieces, int writer, int writers);

}  // namespace lockstep::plan
