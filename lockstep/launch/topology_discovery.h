/// This host as a value: what hwloc sees of packages, caches and cores, as far as ranks may run
/// there.
#pragma once

#include <string>
#include <vector>

#include "lockstep/plan/topology.h"

struct hwloc_topology;  // what hwloc_topology_t points to

namespace lockstep::launch {

/// The hardware threads `allowed` of this host. Where hwloc sees nothing, or not all of them (in
/// some containers), they are cores without second threads that share one cache.
plan::Host discover_host(const std::vector<int>& allowed);

/// The same from a topology that hwloc has loaded; packages, caches and cores without an allowed
/// thread are left out. A core is in the group of its outermost cache: L3 as a rule, L2 where that
/// is the last; a package without known caches is one group.
plan::Host host_of(hwloc_topology* topology, std::string name, const std::vector<int>& allowed);

}  // namespace lockstep::launch
