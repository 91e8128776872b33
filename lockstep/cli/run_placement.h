/// Where the ranks of a run sit, as far as this command knows, and what is to be said of that.
#pragma once

#include <optional>
#include <string>

#include "lockstep/plan/topology.h"
#include "lockstep/plan/train_config.h"

namespace lockstep::cli {

struct PlacementQuestion {
  std::string file;     // hosts and links (topology_file.h); empty: what is seen from here
  int hosts = 1;        // 0: they hold unequal numbers of ranks
  bool joined = false;  // another launcher has placed the ranks
};

/// Without a file: on cores of this host where the launcher will bind ranks to them. Else of ranks
/// only their host is known, numbered host by host; nothing where hosts hold unequal numbers.
/// Throws UsageError: the file, or more ranks than it has hardware threads.
std::optional<plan::Placement> placement_of_run(const plan::TrainConfig& config, int ranks,
                                                const PlacementQuestion& question);

/// "warning: tp group {2, 3} crosses hosts ...", a line for each axis that does not fit its links
/// (plan/layout_check.h); empty where all do, or nothing is known.
std::string placement_warnings(const plan::TrainConfig& config, int ranks,
                               const PlacementQuestion& question);

}  // namespace lockstep::cli
