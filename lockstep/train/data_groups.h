/// The groups that a rank takes its steps in, but for the edges of a pipeline
/// (parallel/pipeline/stage_messages.h).
#pragma once

#include <vector>

#include "lockstep/comm/rank_context.h"
#include "lockstep/plan/run_layout.h"

namespace lockstep {

/// Makes dp of the ranks that hold the same part of the model, and where something is sharded also
/// `shard` and `gather` (ranks that follow each other: the fastest links) and `replica`; where the
/// model has parts, those of its stages and grains. All ranks of the world call it alike.
void make_groups(RankContext& context, const plan::ShardOptions& options,
                 const plan::RankPlace& place);

/// Those that steps communicate in.
std::vector<ProcessGroup*> groups_of(const RankContext& context);

}  // namespace lockstep
