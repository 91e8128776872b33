/// What the ranks that together hold one replica of a model know of each other's parts: stages of a
/// pipeline, tensor grains, shards. Norm, digest and model file count every element once by it.
#pragma once

#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/plan/param_table.h"
#include "lockstep/plan/shard_layout.h"

namespace lockstep {

struct ModelParts {
  /// The parameters of all parts; of those that several hold, once.
  plan::ParamTable whole;
  /// By rank of the group: its parameters, as places in `whole`.
  std::vector<std::vector<int>> held;
  /// By rank: the pieces that it owns and counts, of `whole`: no two ranks count the same element.
  std::vector<std::vector<plan::Piece>> owned;
  /// This rank's of `owned`, of parameters as its own table numbers them.
  std::vector<plan::Piece> counted;
  /// By parameter of this rank's table: it counts, and the same parameter on other parts does not.
  std::vector<bool> counts;
};

/// A collective of `group`, whose rank r has the parameters `table`, divided as `layout` says
/// among ranks of which this is `shard`. Ranks of one part pass the same `part`; a parameter that
/// several parts hold counts in the lowest. Throws UsageError if two parts have a parameter of one
/// name and differ in its shape.
ModelParts exchange_parts(ProcessGroup& group, const plan::ParamTable& table,
                          const plan::ShardLayout& layout, int shard, int part);

}  // namespace lockstep
