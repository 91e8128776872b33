/// What signals ask of a rank.
///
///   SIGINT, SIGTERM   finish the step, save, leave       Requests::stop
///   SIGUSR1           save, and go on                    Requests::saves
///   SIGUSR2           say where every thread is and which calls wait for whom, and go on
///
/// The launcher passes SIGUSR1 and SIGUSR2 on only to processes that catch them.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "lockstep/net/world.h"

namespace lockstep::worker {

struct Requests {
  std::atomic<bool> stop{false};
  std::atomic<int> saves{0};  // SIGUSR1s so far
};

/// Catches SIGINT, SIGTERM and SIGUSR1 from now on; what has been asked for is in the result.
const Requests& catch_requests();

/// Catches SIGUSR2 from now on, unless the program already does: a thread of its own, ls-signals,
/// writes the dump to stderr. Calls after the first do nothing.
void dump_on_request();

/// From now on dumps say where `ranks` of `region`, which this process runs, are and wait.
void tell_in_dumps(std::shared_ptr<net::Region> region, std::vector<int> ranks);

}  // namespace lockstep::worker
