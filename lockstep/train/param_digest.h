/// The digest of a model whose parameters may be divided among ranks.
#pragma once

#include <string>

#include "lockstep/comm/rank_context.h"
#include "lockstep/state/param_store.h"
#include "lockstep/train/model_parts.h"

namespace lockstep {

/// All ranks of the world call it; the same text on each, and on any layout.
/// `parts`: of a model that ranks hold parts of; else null.
std::string param_digest(const state::ParamStore& params, const RankContext& context,
                         const ModelParts* parts = nullptr);

}  // namespace lockstep
