/// A model that a command was given, before any rank is started for it.
#pragma once

#include <string>
#include <vector>

#include "lockstep/checkpoint/weights.h"

namespace lockstep::cli {

/// What the weights at `path` are (checkpoint/weights.h); what a user should know of them is said
/// on stderr. Throws StateError: nothing that is known.
checkpoints::WeightOrigin open_model(const std::string& path);

/// On stderr, a line each.
void say_notes(const std::vector<std::string>& notes);

}  // namespace lockstep::cli
