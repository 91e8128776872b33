#include "lockstep/cli/run_placement.h"

#include <vector>

#include "lockstep/base/str.h"
#include "lockstep/cli/topology_file.h"
#include "lockstep/launch/cores.h"
#include "lockstep/launch/topology_discovery.h"
#include "lockstep/plan/layout_check.h"

namespace lockstep::cli {
namespace {

/// As many cores as it has ranks, and nothing said of what lies between them.
plan::Host flat_host(const std::string& name, int ranks) {
  plan::CacheGroup cores;
  for (int cpu = 0; cpu < ranks; ++cpu) cores.cores.push_back({{cpu}});
  return {name, {plan::Package{{std::move(cores)}}}};
}

bool are_bound(const plan::TrainConfig& config, int ranks, const PlacementQuestion& question) {
  return !question.joined && config.comm.engine == "shm" && ranks > 1 &&
         ranks <= launch::cores_at_full_speed();
}

}  // namespace

std::optional<plan::Placement> placement_of_run(const plan::TrainConfig& config, int ranks,
                                                const PlacementQuestion& question) {
  if (!question.file.empty()) return plan::place_ranks(read_topology(question.file), ranks);
  if (question.hosts == 0) return std::nullopt;
  plan::Topology topology;
  if (are_bound(config, ranks, question)) {
    topology.hosts.push_back(launch::discover_host(launch::allowed_cores()));
  } else {
    for (int host = 0; host < question.hosts; ++host) {
      topology.hosts.push_back(flat_host(base::str("host ", host), ranks / question.hosts));
    }
  }
  return plan::place_ranks(std::move(topology), ranks);
}

std::string placement_warnings(const plan::TrainConfig& config, int ranks,
                               const PlacementQuestion& question) {
  const std::optional<plan::Placement> placement = placement_of_run(config, ranks, question);
  if (!placement) return "";
  std::string text;
  for (const std::string& line : plan::layout_warnings(config, *placement)) {
    text += base::str(text.empty() ? "" : "\n", "warning: ", line);
  }
  return text;
}

}  // namespace lockstep::cli
