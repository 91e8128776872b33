/// Does a run's layout fit the links under its ranks? mesh_check.h, asked of a run's settings and
/// answered in them.
///
///   tp group {2, 3} crosses hosts (1 GB/s, assumed) while ...: --set parallel.tensor=1 ...
#pragma once

#include <string>
#include <vector>

#include "lockstep/plan/topology.h"
#include "lockstep/plan/train_config.h"

namespace lockstep::plan {

/// A line for each axis (replica, pp, shard or dp, tp) with a group on a slower link than its place
/// asks for: axis, ranks, link, and what to do. A setting that is advised is one that the run can
/// start with, that ends the warning, and that leaves the bits as they are. `config` fits as many
/// ranks as `placement` has.
std::vector<std::string> layout_warnings(const TrainConfig& config, const Placement& placement);

}  // namespace lockstep::plan
