/// What one rank keeps for itself: its heap's books, its options, the number of its next group.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/net/heap.h"
#include "lockstep/net/region.h"
#include "lockstep/net/remote_ranks.h"

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
  std::atomic<int> next_group{1};  // 0 is the world
  std::mutex mutex;  // guards world, left_behind and the writing of this rank's status
  /// Copies of messages that nobody had taken when their group went. A destructor does not wait for
  /// a peer, and the peer may still read them.
  std::vector<std::shared_ptr<void>> left_behind;
};

}  // namespace lockstep::net
