/// What `lockstep doctor` says of a topology: what there is, where ranks sit, whether a mesh fits.
#pragma once

#include <string>
#include <vector>

#include "lockstep/cli/machine.h"
#include "lockstep/plan/topology.h"

namespace lockstep::cli {

struct TopologyQuestion {
  std::string file;  // empty: this host
  int ranks = 0;     // 0: one a core, on this host as many as run at full speed
  std::string mesh;  // "pp=2 tp=4"; empty: none
};

/// Throws UsageError: the file (see topology_file.h), more ranks than hardware threads, no such
/// mesh.
plan::Topology topology_of(const TopologyQuestion& question);
std::vector<Finding> inspect_topology(const TopologyQuestion& question);

/// "h0 to h3, each 2 packages, 4 caches, 16 cores, 32 hardware threads", a line for hosts alike.
std::string hosts_text(const plan::Topology& topology);

/// "ranks 0 to 3: h0, package 0, cache 1: cpus 0-3", a line for each cache with ranks.
std::string ranks_text(const plan::Placement& placement);

/// "links: cache 0.2 us, 20 GB/s; ...", those that the topology has.
std::string links_text(const plan::Topology& topology);

}  // namespace lockstep::cli
