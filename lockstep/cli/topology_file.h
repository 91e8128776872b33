/// Topology files: hosts and links that no single host can see, written down.
///
///   [[hosts]]
///   names = ["node0", "node1"]            # alike; ranks follow this order
///   packages = [["8x2", "8x2"], ["8x2"]]  # sockets of last-level caches: cores x threads
///
///   [links.network]                       # also links.cache, links.package, links.host
///   latency_us = 5
///   gb_per_s = 12.5                       # 10^9 bytes
///
/// "8" is 8 cores of one hardware thread, "4x2 8x1" a cache of unlike cores. Threads are numbered
/// from 0 on each host, second ones last. A link that is left out keeps what plan::Topology
/// assumes.
#pragma once

#include <string>

#include "lockstep/plan/topology.h"

namespace lockstep::cli {

/// Throws UsageError, naming the line: what is unknown (with the nearest), missing, no number or
/// out of range; a host that comes twice.
plan::Topology read_topology(const std::string& path);

/// The file of a topology, assumed links as comments. Which numbers hardware threads have is not in
/// it.
std::string topology_as_toml(const plan::Topology& topology);

}  // namespace lockstep::cli
