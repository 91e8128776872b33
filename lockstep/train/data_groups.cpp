#include "lockstep/train/data_groups.h"

#include <numeric>

namespace lockstep {
namespace {

void make_part_groups(RankContext& context, const plan::RankPlace& place) {
  ProcessGroup& world = *context.world;
  if (place.tp.size() > 1) context.tp = world.subgroup(place.tp, "tp");
  if (place.cp.size() > 1) context.cp = world.subgroup(place.cp, "cp");
  if (place.stages.size() > 1) {
    context.tie = world.subgroup({place.stages.front(), place.stages.back()}, "tie");
  }
  context.part = place.stage * static_cast<int>(place.tp.size()) + place.tensor;
  if (place.tp.size() * place.stages.size() == 1) return;
  context.model = world.subgroup(place.model, "model");
  std::vector<int> everyone(static_cast<size_t>(world.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  context.all = world.subgroup(everyone, "all");
}

void make_shard_groups(RankContext& context, const plan::ShardOptions& options,
                       const plan::RankPlace& place) {
  ProcessGroup& world = *context.world;
  const int first = place.data / options.ranks * options.ranks;
  const std::vector<int> own(place.dp.begin() + first, place.dp.begin() + first + options.ranks);
  context.shard = world.subgroup(own, "shard");
  context.gather = world.subgroup(own, "gather");
  std::vector<int> same;
  for (auto rank = static_cast<size_t>(place.data % options.ranks); rank < place.dp.size();
       rank += static_cast<size_t>(options.ranks)) {
    same.push_back(place.dp[rank]);
  }
  context.replica = world.subgroup(same, "replica");
}

}  // namespace

void make_groups(RankContext& context, const plan::ShardOptions& options,
                 const plan::RankPlace& place) {
  context.dp = context.world->subgroup(place.dp, "dp");
  const bool all = std::ssize(place.dp) == context.world->size();
  context.peers = all ? context.world : context.world->subgroup(place.dp, "peers");
  if (options.stage != plan::Shard::none) make_shard_groups(context, options, place);
  make_part_groups(context, place);
  // The plan of their bytes follows the direct algorithm, which is canonical for any terms.
  for (ProcessGroup* group : groups_of(context)) {
    if (group != context.dp.get()) group->group().set_algorithms({});
  }
}

std::vector<ProcessGroup*> groups_of(const RankContext& context) {
  std::vector<ProcessGroup*> groups;
  for (const auto& group : {context.dp, context.shard, context.gather, context.replica, context.tp,
                            context.cp, context.tie, context.model, context.all}) {
    if (group) groups.push_back(group.get());
  }
  return groups;
}

}  // namespace lockstep
