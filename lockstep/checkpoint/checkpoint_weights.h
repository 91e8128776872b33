/// The weights in a checkpoint, on whatever layout it was saved: masters and running values,
/// without what only a run that goes on needs.
///
/// Opening finds damage in the manifest, the index and every part's size and header. Values that
/// are read in part are proven by nobody; who reads all of them compares digest_of with the digest
/// that the manifest states, as the loading of a model does.
///
/// Moves   the bytes asked for, once      Holds   no file in memory (checkpoint/reader.h)
#pragma once

#include <memory>
#include <string>

#include "lockstep/checkpoint/weights.h"

namespace lockstep::checkpoints {

/// Throws StateError naming the file and what is wrong with it.
std::unique_ptr<Weights> open_checkpoint(const std::string& folder);

}  // namespace lockstep::checkpoints
