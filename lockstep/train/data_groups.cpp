#include "lockstep/train/data_groups.h"

#include <numeric>

namespace lockstep {

void make_groups(RankContext& context, const plan::ShardOptions& options) {
  ProcessGroup& world = *context.world;
  std::vector<int> everyone(static_cast<size_t>(world.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  context.dp = world.subgroup(everyone, "dp");
  if (options.stage == plan::Shard::none) return;

  const int first = world.rank() / options.ranks * options.ranks;
  const std::vector<int> own(everyone.begin() + first, everyone.begin() + first + options.ranks);
  context.shard = world.subgroup(own, "shard");
  context.gather = world.subgroup(own, "gather");
  std::vector<int> same;
  for (int rank = world.rank() % options.ranks; rank < world.size(); rank += options.ranks) {
    same.push_back(rank);
  }
  context.replica = world.subgroup(same, "replica");
  // The plan of their bytes follows the direct algorithm, which is canonical for any terms.
  for (ProcessGroup* group : {context.shard.get(), context.gather.get(), context.replica.get()}) {
    group->group().set_algorithms({});
  }
}

std::vector<ProcessGroup*> groups_of(const RankContext& context) {
  std::vector<ProcessGroup*> groups;
  for (const auto& group : {context.dp, context.shard, context.gather, context.replica}) {
    if (group) groups.push_back(group.get());
  }
  return groups;
}

}  // namespace lockstep
