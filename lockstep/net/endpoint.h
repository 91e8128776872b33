/// What one rank keeps for itself: its heap's books, its options, its seats in groups.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "lockstep/net/heap.h"
#include "lockstep/net/region.h"
#include "lockstep/net/remote_ranks.h"
#include "lockstep/net/seats.h"

namespace lockstep::net {

struct Endpoint::Impl {
  std::shared_ptr<Region> region;
  int rank = 0;
  bool direct_memory = false;
  EndpointOptions options;
  std::shared_ptr<Heap> heap;
  std::unique_ptr<RemoteRanks> remote;  // null: all ranks are on this host
  std::weak_ptr<Endpoint> self;
  std::unique_ptr<Group> world;
  std::optional<Seats> seats;
  std::mutex mutex;  // guards world and the writing of this rank's status
};

}  // namespace lockstep::net
