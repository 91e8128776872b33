/// The groups of data parallelism: all ranks, and those that divide a replica's state.
#pragma once

#include <vector>

#include "lockstep/comm/rank_context.h"
#include "lockstep/plan/shard_layout.h"

namespace lockstep {

/// Makes dp of all ranks of the world, and where something is sharded also `shard` and `gather`
/// (ranks that follow each other: the fastest links) and `replica`. All ranks call it alike.
void make_groups(RankContext& context, const plan::ShardOptions& options);

/// Those that steps communicate in.
std::vector<ProcessGroup*> groups_of(const RankContext& context);

}  // namespace lockstep
