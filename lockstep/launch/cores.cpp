#include "lockstep/launch/cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "lockstep/launch/topology_discovery.h"
#include "lockstep/plan/topology.h"

namespace lockstep::launch {

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) cores.push_back(core);
    }
  }
  return cores;
}

std::vector<int> cores_of_ranks(int ranks) {
  plan::Topology topology;
  topology.hosts.push_back(discover_host(allowed_cores()));
  const plan::Placement placement = plan::place_ranks(std::move(topology), ranks);
  std::vector<int> cores;
  for (int rank = 0; rank < ranks; ++rank) cores.push_back(placement.cpu_of(rank));
  return cores;
}

std::optional<double> cores_of_limit(const std::string& cpu_max) {
  std::istringstream words(cpu_max);
  double quota = 0;
  double period = 0;
  if (!(words >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

std::optional<double> granted_cores() {
  std::ifstream membership("/proc/self/cgroup");
  std::string line;
  // The line of the unified hierarchy: "0::/user.slice/a/b".
  while (std::getline(membership, line) && !line.starts_with("0::")) {
  }
  if (!line.starts_with("0::")) return std::nullopt;
  std::optional<double> least;
  // A group gets no more than any group above it.
  for (std::string group = line.substr(3);;) {
    std::string text;
    std::getline(std::ifstream("/sys/fs/cgroup" + group + "/cpu.max"), text);
    const std::optional<double> here = cores_of_limit(text);
    if (here && (!least || *here < *least)) least = here;
    if (group.empty()) return least;
    group.erase(group.rfind('/'));
  }
}

int cores_at_full_speed() {
  const int allowed = static_cast<int>(allowed_cores().size());
  const std::optional<double> granted = granted_cores();
  return granted ? std::min(allowed, std::max(1, static_cast<int>(std::floor(*granted)))) : allowed;
}

}  // namespace lockstep::launch
