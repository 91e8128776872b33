/// The digest of a model whose parameters may be divided among ranks.
#pragma once

#include <string>

#include "lockstep/comm/rank_context.h"
#include "lockstep/state/param_store.h"

namespace lockstep {

/// All ranks of the world call it; the same text on each, and on any layout.
std::string param_digest(const state::ParamStore& params, const RankContext& context);

}  // namespace lockstep
