/// `lockstep train` as a rank of another launcher: mpirun -n 2 lockstep train ... is one job of two
/// ranks. Rank 0 resolves the config and makes the run folder; the others of its host get both,
/// with the region, by the handover (launch/region_handover.h). Ranks of other hosts get them from
/// rank 0 when they have started; their local rank 0 reads the config for what starting takes. Each
/// process watches the rank it starts.
#pragma once

#include <optional>
#include <string>

#include "lockstep/launch/job.h"
#include "lockstep/launch/place.h"

namespace lockstep::cli {

/// Where this process stands among ranks that were started together; nothing if it stands alone.
/// Throws EnvironmentError: variables that contradict each other.
std::optional<launch::Place> joined_place();

/// What all ranks of the job must agree on.
struct JoinedRun {
  std::string folder;  // empty on other hosts than rank 0's
  std::string logs;    // folder of the ranks' logs: the run's, or one in it; empty as above
  std::string worker;  // the program
  std::string engine;
  double timeout_s = 120;
};

/// For local rank 0: gives `run` to the others of its host. Returns this rank's share of the job.
launch::Share start_joined(const launch::Place& place, const JoinedRun& run);

/// For local rank 0, when there is no run to join: the others of its host end with its exit code.
void refuse_joined(const launch::Place& place, const std::string& message, int exit_code);

/// For the others: the run to take part in.
launch::Share follow_joined(const launch::Place& place, JoinedRun& run);

}  // namespace lockstep::cli
