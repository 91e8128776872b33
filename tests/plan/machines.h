/// Regular machines, for tests.
#pragma once

#include "lockstep/base/str.h"
#include "lockstep/plan/topology.h"

namespace lockstep::plan {

struct Machine {
  int packages = 1;
  int caches = 1;   // of a package
  int cores = 1;    // of a cache
  int threads = 1;  // of a core
};

/// `hosts` machines "h0", "h1", ... that are alike; threads are numbered from 0, second ones last.
inline Topology machines(int hosts, const Machine& machine) {
  const auto times = [](int count) { return static_cast<size_t>(count); };
  Topology topology;
  for (int i = 0; i < hosts; ++i) {
    const CacheGroup cache{
        std::vector<Core>(times(machine.cores), Core{std::vector<int>(times(machine.threads))})};
    const Package package{std::vector<CacheGroup>(times(machine.caches), cache)};
    Host host{base::str("h", i), std::vector<Package>(times(machine.packages), package)};
    int cpu = 0;
    for (size_t thread = 0; thread < times(machine.threads); ++thread) {
      for (Package& of_host : host.packages) {
        for (CacheGroup& of_package : of_host.caches) {
          for (Core& core : of_package.cores) core.cpus[thread] = cpu++;
        }
      }
    }
    topology.hosts.push_back(std::move(host));
  }
  return topology;
}

}  // namespace lockstep::plan
