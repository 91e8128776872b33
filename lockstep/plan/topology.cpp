#include "lockstep/plan/topology.h"

#include <algorithm>
#include <tuple>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::plan {
namespace {

const Core& core_at(const Topology& topology, const Seat& seat) {
  const auto at = [](const auto& list, int index) -> const auto& {
    return list[static_cast<size_t>(index)];
  };
  const Host& host = at(topology.hosts, seat.host);
  return at(at(at(host.packages, seat.package).caches, seat.cache).cores, seat.core);
}

template <class Function>
void for_each_core(const Host& host, const Function& function) {
  for (const Package& package : host.packages) {
    for (const CacheGroup& cache : package.caches) {
      for (const Core& core : cache.cores) function(core);
    }
  }
}

/// A seat on the first thread of every core, in the order in which the cores lie.
std::vector<Seat> slot_of_every_core(const Topology& topology) {
  std::vector<Seat> seats;
  Seat seat;
  for (const Host& host : topology.hosts) {
    seat.package = 0;
    for (const Package& package : host.packages) {
      seat.cache = 0;
      for (const CacheGroup& cache : package.caches) {
        for (seat.core = 0; seat.core < static_cast<int>(cache.cores.size()); ++seat.core) {
          seats.push_back(seat);
        }
        ++seat.cache;
      }
      ++seat.package;
    }
    ++seat.host;
  }
  return seats;
}

}  // namespace

int Host::cores() const {
  int count = 0;
  for_each_core(*this, [&](const Core&) { ++count; });
  return count;
}

int Host::hardware_threads() const {
  int count = 0;
  for_each_core(*this, [&](const Core& core) { count += static_cast<int>(core.cpus.size()); });
  return count;
}

const char* name_of(LinkLevel level) {
  switch (level) {
    case LinkLevel::cache:
      return "cache";
    case LinkLevel::package:
      return "package";
    case LinkLevel::host:
      return "host";
    case LinkLevel::network:
      return "network";
  }
  return "";
}

bool Link::is_slower_than(const Link& other) const {
  return std::tuple(bytes_per_second, -latency_s) <
         std::tuple(other.bytes_per_second, -other.latency_s);
}

bool Topology::is_slower(LinkLevel a, LinkLevel b) const {
  const bool all_given =
      std::none_of(links.begin(), links.end(), [](const Link& given) { return given.assumed; });
  return all_given ? link(a).is_slower_than(link(b)) : a > b;
}

int Topology::cores() const {
  int count = 0;
  for (const Host& host : hosts) count += host.cores();
  return count;
}

int Topology::hardware_threads() const {
  int count = 0;
  for (const Host& host : hosts) count += host.hardware_threads();
  return count;
}

const Host& Placement::host_of(int rank) const {
  LOCKSTEP_ASSERT(0 <= rank && rank < ranks(), "no such rank in the placement");
  return topology.hosts[static_cast<size_t>(seats[static_cast<size_t>(rank)].host)];
}

int Placement::cpu_of(int rank) const {
  LOCKSTEP_ASSERT(0 <= rank && rank < ranks(), "no such rank in the placement");
  const Seat& seat = seats[static_cast<size_t>(rank)];
  return core_at(topology, seat).cpus[static_cast<size_t>(seat.thread)];
}

Placement place_ranks(Topology topology, int ranks) {
  if (ranks < 1) throw UsageError(base::str(ranks, " ranks: a job has at least 1 rank."));
  const int threads = topology.hardware_threads();
  if (ranks > threads) {
    throw UsageError(base::str(ranks, " ranks do not fit: the topology has ", topology.cores(),
                               " cores with ", threads, " hardware threads.\n  Place at most ",
                               threads, " ranks, or one a core: ", topology.cores(), "."));
  }
  const size_t count = static_cast<size_t>(ranks);
  std::vector<Seat> seats;
  for (int thread = 0; seats.size() < count; ++thread) {
    for (Seat seat : slot_of_every_core(topology)) {
      const int of_core = static_cast<int>(core_at(topology, seat).cpus.size());
      if (thread >= of_core || seats.size() == count) continue;
      seat.thread = thread;
      seats.push_back(seat);
    }
  }
  std::sort(seats.begin(), seats.end());
  return {std::move(topology), std::move(seats)};
}

LinkLevel level_between(const Placement& placement, int a, int b) {
  LOCKSTEP_ASSERT(0 <= std::min(a, b) && std::max(a, b) < placement.ranks(),
                  "no such rank in the placement");
  const Seat& x = placement.seats[static_cast<size_t>(a)];
  const Seat& y = placement.seats[static_cast<size_t>(b)];
  if (x.host != y.host) return LinkLevel::network;
  if (x.package != y.package) return LinkLevel::host;
  return x.cache != y.cache ? LinkLevel::package : LinkLevel::cache;
}

const Link& link_between(const Placement& placement, int a, int b) {
  return placement.topology.link(level_between(placement, a, b));
}

std::optional<LinkLevel> slowest_level(const Placement& placement, const std::vector<int>& group) {
  std::optional<LinkLevel> slowest;
  for (size_t i = 0; i < group.size(); ++i) {
    for (size_t j = i + 1; j < group.size(); ++j) {
      const LinkLevel level = level_between(placement, group[i], group[j]);
      if (!slowest || placement.topology.is_slower(level, *slowest)) slowest = level;
    }
  }
  return slowest;
}

}  // namespace lockstep::plan
