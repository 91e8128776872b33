/// Where ranks sit and what lies between them: hosts of packages (sockets), of groups of cores that
/// share a last-level cache, of cores, of hardware threads.
///
///   host a             package 0                   package 1
///                cache 0     cache 1         cache 0     cache 1
///     cores      0    1      0    1          0    1      0    1
///     ranks      0    1      2    3          4    5      6    7     place_ranks(topology, 8)
///                \cache/                                            0 and 1
///                \----package----/                                  0 and 2
///                \------------------host------------------/         0 and 4
///                                                                   on two hosts: network
///
/// Source  alpha and beta of a link: Hockney 1994, Parallel Computing 20(3)
#pragma once

#include <array>
#include <compare>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::plan {

/// A physical core.
struct Core {
  /// The system's numbers of its hardware threads. A described host counts them from 0.
  std::vector<int> cpus;
  bool operator==(const Core&) const = default;
};

/// Cores that share a last-level cache; all of a package whose caches are not known.
struct CacheGroup {
  std::vector<Core> cores;
  bool operator==(const CacheGroup&) const = default;
};

struct Package {
  std::vector<CacheGroup> caches;
  bool operator==(const Package&) const = default;
};

struct Host {
  std::string name;
  std::vector<Package> packages;
  bool operator==(const Host&) const = default;

  int cores() const;
  int hardware_threads() const;
};

/// The innermost thing that two ranks have in common, from inside out.
enum class LinkLevel { cache, package, host, network };

inline constexpr std::array<LinkLevel, 4> kLinkLevels = {LinkLevel::cache, LinkLevel::package,
                                                         LinkLevel::host, LinkLevel::network};

/// "cache", "package", "host", "network".
const char* name_of(LinkLevel level);

/// A message of n bytes takes `latency_s + n / bytes_per_second`.
struct Link {
  double latency_s = 0;
  double bytes_per_second = 0;
  bool assumed = false;  // a round figure of ours: nobody has measured it or written it down
  bool operator==(const Link&) const = default;

  /// Fewer bytes a second; where those are equal, more latency.
  bool is_slower_than(const Link& other) const;
};

struct Topology {
  std::vector<Host> hosts;
  /// By level. Unless something better is known: 0.2 us and 20 GB/s, 0.3 us and 12 GB/s, 0.5 us and
  /// 8 GB/s, 30 us and 1 GB/s, the order of magnitude of servers with two sockets on 10 Gbit/s.
  std::array<Link, 4> links = {Link{0.2e-6, 20e9, true}, Link{0.3e-6, 12e9, true},
                               Link{0.5e-6, 8e9, true}, Link{30e-6, 1e9, true}};
  bool operator==(const Topology&) const = default;

  const Link& link(LinkLevel level) const { return links[static_cast<size_t>(level)]; }
  /// By their figures if all four are given; else the one further out is the slower: what is
  /// assumed says nothing against what is given.
  bool is_slower(LinkLevel a, LinkLevel b) const;
  int cores() const;
  int hardware_threads() const;
};

/// Where a rank can sit: indices, each inside the one before it.
struct Seat {
  int host = 0;
  int package = 0;
  int cache = 0;
  int core = 0;
  int thread = 0;
  auto operator<=>(const Seat&) const = default;
};

/// Ranks on a topology.
struct Placement {
  Topology topology;
  std::vector<Seat> seats;  // by rank

  int ranks() const { return static_cast<int>(seats.size()); }
  const Host& host_of(int rank) const;
  /// The hardware thread of `rank`, by the number of its host's system.
  int cpu_of(int rank) const;
};

/// Ranks in blocks: as many seats as there are ranks, the fastest level filled first, and numbered
/// in the order in which they lie. All cores of all hosts come before any core's second thread.
/// Throws UsageError: no rank, or more ranks than hardware threads.
Placement place_ranks(Topology topology, int ranks);

/// What lies between two ranks. Two on one core share its cache.
LinkLevel level_between(const Placement& placement, int a, int b);
const Link& link_between(const Placement& placement, int a, int b);

/// The level of the slowest link between any two of `group`; nothing for a rank alone.
std::optional<LinkLevel> slowest_level(const Placement& placement, const std::vector<int>& group);

}  // namespace lockstep::plan
