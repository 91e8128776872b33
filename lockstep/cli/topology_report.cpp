#include "lockstep/cli/topology_report.h"

#include <algorithm>
#include <tuple>

#include "lockstep/base/str.h"
#include "lockstep/cli/topology_file.h"
#include "lockstep/launch/cores.h"
#include "lockstep/launch/topology_discovery.h"
#include "lockstep/plan/mesh_check.h"

namespace lockstep::cli {
namespace {

std::string count_text(int count, const std::string& noun) {
  return base::str(count, " ", noun, count == 1 ? "" : "s");
}

int caches_of(const plan::Host& host) {
  int caches = 0;
  for (const plan::Package& package : host.packages) {
    caches += static_cast<int>(package.caches.size());
  }
  return caches;
}

std::string size_text(const plan::Host& host) {
  return base::str(count_text(static_cast<int>(host.packages.size()), "package"), ", ",
                   count_text(caches_of(host), "last-level cache"), ", ",
                   count_text(host.cores(), "core"), ", ",
                   count_text(host.hardware_threads(), "hardware thread"));
}

/// Whether two hardware threads of the topology share `level` and nothing nearer.
bool has_link(const plan::Topology& topology, plan::LinkLevel level) {
  const auto any = [](const auto& list, const auto& holds) {
    return std::any_of(list.begin(), list.end(), holds);
  };
  switch (level) {
    case plan::LinkLevel::cache:
      return any(topology.hosts,
                 [](const plan::Host& host) { return host.hardware_threads() > caches_of(host); });
    case plan::LinkLevel::package:
      return any(topology.hosts, [](const plan::Host& host) {
        return caches_of(host) > static_cast<int>(host.packages.size());
      });
    case plan::LinkLevel::host:
      return any(topology.hosts, [](const plan::Host& host) { return host.packages.size() > 1; });
    case plan::LinkLevel::network:
      return topology.hosts.size() > 1;
  }
  return false;
}

/// Why the launcher would bind none of these ranks of this host; empty if it binds them.
std::string reason_not_to_bind(int ranks) {
  if (ranks == 1) return "a lone rank is bound to no core";
  const int at_once = launch::cores_at_full_speed();
  if (ranks <= at_once) return "";
  return base::str(ranks, " ranks are more than the ", at_once,
                   " that run at full speed here: none is bound to a core");
}

void add_line(std::string& text, const std::string& line) {
  text += base::str(text.empty() ? "" : "\n", line);
}

/// "0-3, 8": runs of numbers that count up.
std::string numbers_text(const std::vector<int>& numbers) {
  std::string text;
  for (size_t first = 0; first < numbers.size();) {
    size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += base::str(text.empty() ? "" : ", ", numbers[first]);
    if (last > first) text += base::str("-", numbers[last]);
    first = last + 1;
  }
  return text;
}

std::vector<Finding> inspect_mesh(const plan::Placement& placement, const std::string& text) {
  const plan::Mesh mesh = plan::Mesh::parse(text, placement.ranks());
  std::vector<Finding> findings;
  for (const plan::MeshWarning& warning : plan::check_mesh(placement, mesh)) {
    findings.push_back({"mesh", Verdict::note, warning.what, warning.help});
  }
  if (!findings.empty()) return findings;
  return {{"mesh", Verdict::ok,
           plan::spelled(mesh.axes()) + ": no group on a slower link than its axis asks for", ""}};
}

}  // namespace

std::string hosts_text(const plan::Topology& topology) {
  std::string text;
  for (auto host = topology.hosts.begin(); host != topology.hosts.end();) {
    const std::string size = size_text(*host);
    const auto end = std::find_if(host, topology.hosts.end(), [&](const plan::Host& other) {
      return size_text(other) != size;
    });
    add_line(text, end - host == 1 ? base::str(host->name, ": ", size)
                                   : base::str(host->name, " to ", (end - 1)->name, ", ",
                                               end - host, " hosts with each ", size));
    host = end;
  }
  return text;
}

std::string ranks_text(const plan::Placement& placement) {
  std::string text;
  const auto cache_of = [&](int rank) {
    const plan::Seat& seat = placement.seats[static_cast<size_t>(rank)];
    return std::tuple(seat.host, seat.package, seat.cache);
  };
  for (int first = 0; first < placement.ranks();) {
    std::vector<int> cpus;
    int rank = first;
    for (; rank < placement.ranks() && cache_of(rank) == cache_of(first); ++rank) {
      cpus.push_back(placement.cpu_of(rank));
    }
    const auto [host, package, cache] = cache_of(first);
    add_line(text, base::str(rank - first == 1 ? base::str("rank ", first)
                                               : base::str("ranks ", first, " to ", rank - 1),
                             ": ", placement.host_of(first).name, ", package ", package, ", cache ",
                             cache, cpus.size() == 1 ? ": cpu " : ": cpus ", numbers_text(cpus)));
    first = rank;
  }
  return text;
}

std::string links_text(const plan::Topology& topology) {
  std::vector<std::string> links;
  for (const plan::LinkLevel level : plan::kLinkLevels) {
    if (!has_link(topology, level)) continue;
    const plan::Link& link = topology.link(level);
    links.push_back(base::str(name_of(level), " ", link.latency_s * 1e6, " us, ",
                              link.bytes_per_second / 1e9, " GB/s",
                              link.assumed ? " (assumed)" : ""));
  }
  std::string text;
  for (const std::string& link : links) text += (text.empty() ? "links: " : "; ") + link;
  return text;
}

plan::Topology topology_of(const TopologyQuestion& question) {
  if (!question.file.empty()) return read_topology(question.file);
  plan::Topology topology;
  topology.hosts.push_back(launch::discover_host(launch::allowed_cores()));
  return topology;
}

std::vector<Finding> inspect_topology(const TopologyQuestion& question) {
  const plan::Topology topology = topology_of(question);
  const bool here = question.file.empty();
  int ranks = question.ranks;
  if (ranks == 0) ranks = here ? launch::cores_at_full_speed() : topology.cores();
  std::string found = hosts_text(topology);
  const std::string unbound = here ? reason_not_to_bind(ranks) : "";
  add_line(found, unbound.empty() ? ranks_text(plan::place_ranks(topology, ranks)) : unbound);
  const std::string links = links_text(topology);
  if (!links.empty()) add_line(found, links);

  std::vector<Finding> findings = {{"topology", Verdict::ok, found, ""}};
  if (question.mesh.empty()) return findings;
  for (Finding& finding : inspect_mesh(plan::place_ranks(topology, ranks), question.mesh)) {
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace lockstep::cli
