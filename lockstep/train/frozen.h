/// Parameters that a run does not train (optim.frozen): they have neither gradient nor optimizer
/// state, and every layout leaves the same ones as they are.
#pragma once

#include <string>

#include "lockstep/comm/rank_context.h"
#include "lockstep/train/task.h"

namespace lockstep {

/// Before a ParamStore takes the parameters over. `patterns`, with commas between them, are of
/// logical names (optim/name_pattern.h); a tied parameter is called as the one it is tied to.
/// All ranks of the world call it, each with its part of the model. Throws UsageError on all of
/// them: a pattern that fits no parameter of the model (with the nearest name), or nothing that is
/// left to train.
void freeze(Task& task, const std::string& patterns, const RankContext& context);

}  // namespace lockstep
