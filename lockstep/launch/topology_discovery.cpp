#include "lockstep/launch/topology_discovery.h"

#include <hwloc.h>
#include <unistd.h>

#include <array>
#include <memory>

namespace lockstep::launch {
namespace {

using Loaded = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;

std::string host_name() {
  std::array<char, 256> name{};
  // A name that is too long is cut, and may then lack its end.
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

/// Null if hwloc sees nothing of this machine.
Loaded load() {
  hwloc_topology_t topology = nullptr;
  // Without it hwloc has a flat host to tell of too, and complains on stderr.
  const bool has_sysfs = access("/sys/devices/system/cpu/cpu0/topology", R_OK) == 0;
  if (!has_sysfs || hwloc_topology_init(&topology) != 0) return {nullptr, hwloc_topology_destroy};
  Loaded loaded(topology, hwloc_topology_destroy);
  // Without the flag hwloc may visit every core to ask it who it is.
  hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING);
  if (hwloc_topology_load(topology) != 0) loaded.reset();
  // HWLOC_XMLFILE and the like show it another machine: of no use for binding ranks on this one.
  if (loaded && hwloc_topology_is_thissystem(topology) == 0) loaded.reset();
  return loaded;
}

/// The outermost cache of `thread`; null if it has none.
hwloc_obj_t last_cache(hwloc_obj_t thread) {
  hwloc_obj_t last = nullptr;
  for (hwloc_obj_t object = thread; object != nullptr; object = object->parent) {
    if (hwloc_obj_type_is_dcache(object->type) != 0) last = object;
  }
  return last;
}

/// Puts hardware threads, as they lie, into the packages, caches and cores that they come from.
class HostBuilder {
 public:
  HostBuilder(hwloc_topology_t topology, std::string name) : topology_(topology) {
    host_.name = std::move(name);
  }

  void add(hwloc_obj_t thread) {
    const hwloc_obj_t package = ancestor(HWLOC_OBJ_PACKAGE, thread);
    const hwloc_obj_t own_core = ancestor(HWLOC_OBJ_CORE, thread);
    const hwloc_obj_t core = own_core != nullptr ? own_core : thread;
    const hwloc_obj_t own_cache = last_cache(thread);
    const hwloc_obj_t cache = own_cache != nullptr ? own_cache : package;
    const bool new_package = host_.packages.empty() || package != package_;
    const bool new_cache = new_package || cache != cache_;
    const bool new_core = new_cache || core != core_;
    if (new_package) host_.packages.emplace_back();
    auto& caches = host_.packages.back().caches;
    if (new_cache) caches.emplace_back();
    if (new_core) caches.back().cores.emplace_back();
    caches.back().cores.back().cpus.push_back(static_cast<int>(thread->os_index));
    package_ = package;
    cache_ = cache;
    core_ = core;
  }

  plan::Host take() { return std::move(host_); }

 private:
  hwloc_obj_t ancestor(hwloc_obj_type_t type, hwloc_obj_t thread) const {
    return hwloc_get_ancestor_obj_by_type(topology_, type, thread);
  }

  hwloc_topology_t topology_;
  plan::Host host_;
  // Of the thread before.
  hwloc_obj_t package_ = nullptr;
  hwloc_obj_t cache_ = nullptr;
  hwloc_obj_t core_ = nullptr;
};

plan::Host flat_host(std::string name, const std::vector<int>& allowed) {
  plan::CacheGroup cache;
  for (const int cpu : allowed) cache.cores.push_back({{cpu}});
  return {std::move(name), {{{std::move(cache)}}}};
}

}  // namespace

plan::Host host_of(hwloc_topology* topology, std::string name, const std::vector<int>& allowed) {
  const std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)> wanted(hwloc_bitmap_alloc(),
                                                                             hwloc_bitmap_free);
  for (const int cpu : allowed) hwloc_bitmap_set(wanted.get(), static_cast<unsigned>(cpu));
  HostBuilder builder(topology, name);
  for (hwloc_obj_t thread = nullptr;
       (thread = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PU, thread)) != nullptr;) {
    if (hwloc_bitmap_isset(wanted.get(), thread->os_index) != 0) builder.add(thread);
  }
  plan::Host host = builder.take();
  const bool sees_all = host.hardware_threads() == static_cast<int>(allowed.size());
  return sees_all ? host : flat_host(std::move(name), allowed);
}

plan::Host discover_host(const std::vector<int>& allowed) {
  const Loaded topology = load();
  return topology ? host_of(topology.get(), host_name(), allowed) : flat_host(host_name(), allowed);
}

}  // namespace lockstep::launch
