/// The digest of a model whose parameters may be divided among ranks.
#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/rank_context.h"
#include "lockstep/state/param_store.h"
#include "lockstep/train/model_parts.h"
#include "lockstep/train/replicas.h"

namespace lockstep {

/// Of running values, float32: as plan/digest.h takes a parameter's.
plan::Digest digest_of(const std::vector<NamedTensor>& running_values);

/// All ranks of the world call it; the same text on each, and on any layout.
/// `parts`: of a model that ranks hold parts of; else null. `running_values` are alike on all ranks
/// and count once.
std::string param_digest(const state::ParamStore& params, const RankContext& context,
                         const ModelParts* parts = nullptr,
                         const std::vector<NamedTensor>& running_values = {});

}  // namespace lockstep
