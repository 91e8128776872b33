/// What the launcher told this process, Lockstep's or another (launch/place.h), and the way into
/// the world: over the region that was inherited, or over one that local rank 0 makes and hands
/// out.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lockstep/launch/place.h"
#include "lockstep/net/world.h"

namespace lockstep::worker {

struct Environment {
  std::string engine = "shm";  // plan/engines.h
  int rank = 0;                // shm: of this process
  int world_size = 1;
  int region_fd = -1;  // -1: none was inherited
  launch::Place place;
  int console_fd = 2;
  bool logged = false;  // stderr is a log of this process's own
  net::EndpointOptions endpoint;
};

/// Without an engine of messages: message_engine.h makes it. Throws EnvironmentError for a value
/// that cannot be read.
Environment read_environment();

/// Joins the world as this process's one rank: over the launcher's region, over one that the ranks
/// of this host agree on, or as a world of one. Throws UsageError for engine threads, whose ranks
/// are not processes; EnvironmentError for ranks on several hosts without engine mpi; what
/// launch/region_handover.h throws.
std::shared_ptr<net::Endpoint> join(const Environment& environment);

/// Joins the world and runs `body` for each rank of this process (one, or all as threads). An
/// exception of a rank is put where launcher and peers find it; returns the exit code of the first
/// rank that failed, else of rank 0.
int run_ranks(const Environment& environment,
              const std::function<int(net::Endpoint& endpoint)>& body);

}  // namespace lockstep::worker
