#include "lockstep/launch/topology_discovery.h"

#include <gtest/gtest.h>
#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/launch/cores.h"

namespace lockstep::launch {
namespace {

/// A machine that we do not have, loaded from the XML that hwloc writes of it.
class Described {
 public:
  explicit Described(const std::string& synthetic) {
    hwloc_topology_t made = nullptr;
    hwloc_topology_init(&made);
    char* xml = nullptr;
    int bytes = 0;
    const bool exported = hwloc_topology_set_synthetic(made, synthetic.c_str()) == 0 &&
                          hwloc_topology_load(made) == 0 &&
                          hwloc_topology_export_xmlbuffer(made, &xml, &bytes, 0) == 0;
    hwloc_topology_init(&topology_);
    const bool read = exported && hwloc_topology_set_xmlbuffer(topology_, xml, bytes) == 0 &&
                      hwloc_topology_load(topology_) == 0;
    if (exported) hwloc_free_xmlbuffer(made, xml);
    hwloc_topology_destroy(made);
    if (!read) throw std::runtime_error("hwloc does not read \"" + synthetic + "\"");
  }
  ~Described() { hwloc_topology_destroy(topology_); }
  Described(const Described&) = delete;
  Described& operator=(const Described&) = delete;

  plan::Host host(const std::vector<int>& allowed) const {
    return host_of(topology_, "node", allowed);
  }
  plan::Host host() const {
    std::vector<int> all(static_cast<size_t>(hwloc_get_nbobjs_by_type(topology_, HWLOC_OBJ_PU)));
    std::iota(all.begin(), all.end(), 0);
    return host(all);
  }

 private:
  hwloc_topology_t topology_ = nullptr;
};

/// "(0,1 2,3) (4,5) | (6)": caches in brackets, cores with their threads, a bar between packages.
std::string shape(const plan::Host& host) {
  std::vector<std::string> packages;
  std::string text;
  for (const plan::Package& package : host.packages) {
    text += text.empty() ? "" : " | ";
    for (const plan::CacheGroup& cache : package.caches) {
      text += text.empty() || text.ends_with(' ') ? "(" : " (";
      for (const plan::Core& core : cache.cores) {
        text += text.ends_with('(') ? "" : " ";
        for (size_t i = 0; i < core.cpus.size(); ++i) {
          text += base::str(i == 0 ? "" : ",", core.cpus[i]);
        }
      }
      text += ")";
    }
  }
  return text;
}

TEST(TopologyDiscovery, PackagesCachesCoresAndThreads) {
  EXPECT_EQ(shape(Described("pack:2 l3:2 core:2 pu:2").host()),
            "(0,1 2,3) (4,5 6,7) | (8,9 10,11) (12,13 14,15)");
  const plan::Host large = Described("pack:2 l3:4 core:8 pu:2").host();
  EXPECT_EQ(large.name, "node");
  ASSERT_EQ(large.packages.size(), 2u);
  ASSERT_EQ(large.packages[1].caches.size(), 4u);
  EXPECT_EQ(large.packages[1].caches[3].cores.size(), 8u);
  EXPECT_EQ(large.cores(), 64);
  EXPECT_EQ(large.hardware_threads(), 128);
}

TEST(TopologyDiscovery, NumbersAreTheSystemsAndOrderIsOfPlace) {
  // As Linux numbers two sockets turn by turn, and second threads last.
  const Described machine("pack:2 l3:1 core:2 pu:2(indexes=0,4,2,6,1,5,3,7)");
  EXPECT_EQ(shape(machine.host()), "(0,4 2,6) | (1,5 3,7)");
  plan::Topology topology;
  topology.hosts = {machine.host()};
  std::vector<int> cpus;
  for (int rank = 0; rank < 4; ++rank) {
    cpus.push_back(plan::place_ranks(topology, 4).cpu_of(rank));
  }
  EXPECT_EQ(cpus, (std::vector<int>{0, 2, 1, 3}));
}

TEST(TopologyDiscovery, TheLastSharedCacheCountsWhateverItsLevel) {
  EXPECT_EQ(shape(Described("pack:1 l3:1 l2:2 core:2 pu:1").host()), "(0 1 2 3)");
  EXPECT_EQ(shape(Described("pack:1 l2:2 core:2 pu:1").host()), "(0 1) (2 3)");
  EXPECT_EQ(shape(Described("pack:1 core:2 l2:1 pu:1").host()), "(0) (1)");  // each has its own
  // One that two sockets share is a group in each: the sockets stay apart.
  EXPECT_EQ(shape(Described("l3:1 pack:2 l2:2 core:1 pu:1").host()), "(0 1) | (2 3)");
}

TEST(TopologyDiscovery, WhatHwlocDoesNotSeeIsOne) {
  EXPECT_EQ(shape(Described("pack:2 core:2 pu:1").host()), "(0 1) | (2 3)");  // no caches
  EXPECT_EQ(shape(Described("core:2 pu:2").host()), "(0,1 2,3)");             // no packages
  EXPECT_EQ(shape(Described("pu:3").host()), "(0 1 2)");                      // threads alone
}

TEST(TopologyDiscovery, OnlyWhatIsAllowedIsThere) {
  const Described machine("pack:2 l3:2 core:2 pu:2");
  EXPECT_EQ(shape(machine.host({3})), "(3)");
  EXPECT_EQ(shape(machine.host({0, 2, 3, 9})), "(0 2,3) | (9)");
  EXPECT_EQ(shape(machine.host({0, 4, 8, 12})), "(0) (4) | (8) (12)");
  // A container may be allowed what it is not shown.
  EXPECT_EQ(shape(machine.host({1, 14, 16})), "(1 14 16)");
}

TEST(TopologyDiscovery, ThisHostHasTheAllowedCores) {
  const std::vector<int> allowed = allowed_cores();
  const plan::Host host = discover_host(allowed);
  EXPECT_FALSE(host.name.empty());
  std::vector<int> found;
  for (const plan::Package& package : host.packages) {
    for (const plan::CacheGroup& cache : package.caches) {
      for (const plan::Core& core : cache.cores) {
        found.insert(found.end(), core.cpus.begin(), core.cpus.end());
      }
    }
  }
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, allowed);
}

TEST(TopologyDiscovery, AnotherMachinesDescriptionIsNotTakenForThisOne) {
  setenv("HWLOC_SYNTHETIC", "pack:8 core:8 pu:2", 1);
  const plan::Host host = discover_host({0, 1, 77});
  unsetenv("HWLOC_SYNTHETIC");
  EXPECT_EQ(shape(host), "(0 1 77)");
}

TEST(TopologyDiscovery, RanksAreBoundToAllowedCoresOnly) {
  const std::vector<int> allowed = allowed_cores();
  const int count = static_cast<int>(allowed.size());
  std::vector<int> cores = cores_of_ranks(count);
  std::sort(cores.begin(), cores.end());
  EXPECT_EQ(cores, allowed);
  EXPECT_THROW(cores_of_ranks(count + 1), UsageError);
  if (count < 2) return;

  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  cpu_set_t last;
  CPU_ZERO(&last);
  CPU_SET(allowed.back(), &last);
  ASSERT_EQ(sched_setaffinity(0, sizeof last, &last), 0);
  EXPECT_EQ(cores_of_ranks(1), std::vector<int>{allowed.back()});
  EXPECT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

}  // namespace
}  // namespace lockstep::launch
