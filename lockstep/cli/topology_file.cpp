#include "lockstep/cli/topology_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/cli/toml_file.h"

namespace lockstep::cli {
namespace {

constexpr int kMostCores = 4096;  // of a cache
constexpr int kMostThreads = 64;  // of a core
constexpr const char* kCacheHelp =
    "A cache is written CORES or CORESxTHREADS: \"8\", \"8x2\", \"4x2 8x1\".";

/// As Linux numbers them as a rule: the first threads of all cores, then the second ones.
void number_threads(plan::Host& host) {
  const int threads = host.hardware_threads();
  int cpu = 0;
  for (size_t thread = 0; cpu < threads; ++thread) {
    for (plan::Package& package : host.packages) {
      for (plan::CacheGroup& cache : package.caches) {
        for (plan::Core& core : cache.cores) {
          if (thread < core.cpus.size()) core.cpus[thread] = cpu++;
        }
      }
    }
  }
}

class TopologyReader {
 public:
  explicit TopologyReader(std::string path) : path_(std::move(path)) {}

  plan::Topology read() {
    const toml::table root = parse_toml(path_, "a topology is", "");
    require_known(root, "", {"hosts", "links"});
    const toml::array* hosts = root["hosts"].as_array();
    if (hosts == nullptr || hosts->empty() || !hosts->is_array_of_tables()) {
      throw UsageError(base::str(path_, ": there are no hosts.\n  Write [[hosts]] with names = ",
                                 "[\"node0\"] and packages = [[\"8\"]]."));
    }
    for (const toml::node& host : *hosts) add_hosts(*host.as_table());
    if (const toml::node* links = root.get("links")) read_links(*links);
    return std::move(topology_);
  }

 private:
  [[noreturn]] void refuse(const toml::node& node, const std::string& what,
                           const std::string& help) const {
    throw UsageError(base::str(path_, ":", line_of(node), ": ", what, "\n  ", help));
  }

  /// `section`: "links." before its keys.
  void require_known(const toml::table& table, const std::string& section,
                     const std::vector<std::string>& known) const {
    for (const auto& [name, node] : table) {
      const std::string key(name.str());
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      const std::string near = base::nearest(key, known);
      refuse(node, base::str("there is no \"", section, key, "\" in a topology."),
             near.empty() ? base::str("There is ", section, base::joined(known), ".")
                          : base::str("Did you mean \"", section, near, "\"?"));
    }
  }

  const toml::array& list(const toml::table& table, const char* key, const char* help) const {
    const toml::node* node = table.get(key);
    if (node == nullptr) refuse(table, base::str("hosts without ", key, "."), help);
    return list(*node, key, help);
  }

  const toml::array& list(const toml::node& node, const char* key, const char* help) const {
    const toml::array* list = node.as_array();
    if (list == nullptr || list->empty()) {
      refuse(node, base::str("hosts.", key, " wants a list that is not empty."), help);
    }
    return *list;
  }

  void add_hosts(const toml::table& table) {
    require_known(table, "hosts.", {"names", "packages"});
    constexpr const char* kNames = "Write names = [\"node0\", \"node1\"].";
    constexpr const char* kPackages =
        "Write a list for each package, in it its last-level caches: packages = [[\"8x2\", "
        "\"8x2\"]].";
    plan::Host host;
    for (const toml::node& package : list(table, "packages", kPackages)) {
      host.packages.emplace_back();
      for (const toml::node& cache : list(package, "packages", kPackages)) {
        host.packages.back().caches.push_back(read_cache(cache));
      }
    }
    number_threads(host);
    for (const toml::node& name : list(table, "names", kNames)) {
      host.name = name.value_exact<std::string>().value_or("");
      if (host.name.empty()) refuse(name, "hosts.names wants texts that are not empty.", kNames);
      if (!names_.insert(host.name).second) {
        refuse(name, base::str("the host \"", host.name, "\" comes twice."),
               "Give each host a name of its own.");
      }
      topology_.hosts.push_back(host);
    }
  }

  plan::CacheGroup read_cache(const toml::node& node) const {
    plan::CacheGroup cache;
    std::istringstream words(node.value_exact<std::string>().value_or(""));
    for (std::string word; words >> word;) {
      const size_t times = std::min(word.find('x'), word.size());
      const int cores = read_count(node, word, word.substr(0, times), kMostCores);
      const int threads =
          times == word.size() ? 1 : read_count(node, word, word.substr(times + 1), kMostThreads);
      for (int i = 0; i < cores; ++i) {
        cache.cores.push_back({std::vector<int>(static_cast<size_t>(threads))});
      }
    }
    if (cache.cores.empty()) refuse(node, "hosts.packages has a cache without cores.", kCacheHelp);
    return cache;
  }

  int read_count(const toml::node& node, const std::string& word, const std::string& digits,
                 int most) const {
    int count = 0;
    const char* end = digits.data() + digits.size();
    const auto parsed = std::from_chars(digits.data(), end, count);
    if (parsed.ec == std::errc() && parsed.ptr == end && 1 <= count && count <= most) return count;
    refuse(node,
           base::str("hosts.packages: in \"", word, "\" \"", digits, "\" is no number from 1 to ",
                     most, "."),
           kCacheHelp);
  }

  void read_links(const toml::node& node) {
    const toml::table* links = node.as_table();
    if (links == nullptr) refuse(node, "links is no section.", "Write [links.network].");
    std::vector<std::string> names;
    for (const plan::LinkLevel level : plan::kLinkLevels) names.emplace_back(name_of(level));
    require_known(*links, "links.", names);
    for (size_t level = 0; level < names.size(); ++level) {
      const toml::node* link = links->get(names[level]);
      if (link != nullptr) topology_.links[level] = read_link(*link, "links." + names[level]);
    }
  }

  plan::Link read_link(const toml::node& node, const std::string& name) const {
    const toml::table* link = node.as_table();
    if (link == nullptr) refuse(node, name + " is no section.", "Write [" + name + "].");
    require_known(*link, name + ".", {"latency_us", "gb_per_s"});
    const double latency_us = read_number(*link, name, "latency_us");
    const double gb_per_s = read_number(*link, name, "gb_per_s");
    return {.latency_s = latency_us / 1e6, .bytes_per_second = gb_per_s * 1e9};
  }

  double read_number(const toml::table& link, const std::string& name, const char* key) const {
    const toml::node* node = link.get(key);
    constexpr const char* kHelp =
        "A link has latency_us and gb_per_s (10^9 bytes), numbers above 0.";
    if (node == nullptr) refuse(link, base::str(name, " has no ", key, "."), kHelp);
    const double number = node->is_number() ? node->value<double>().value_or(0) : 0;
    if (!std::isfinite(number) || number <= 0) {
      refuse(*node, base::str(name, ".", key, " is no number above 0."), kHelp);
    }
    return number;
  }

  std::string path_;
  plan::Topology topology_;
  std::set<std::string> names_;
};

/// Twelve digits: what was read from a file comes out as it stood there.
std::string number_text(double value) {
  std::array<char, 32> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general, 12);
  return {text.data(), end.ptr};
}

/// "4x2 8": runs of cores with as many threads.
std::string cache_text(const plan::CacheGroup& cache) {
  std::string text;
  for (auto core = cache.cores.begin(); core != cache.cores.end();) {
    const size_t threads = core->cpus.size();
    const auto end = std::find_if(core, cache.cores.end(), [&](const plan::Core& other) {
      return other.cpus.size() != threads;
    });
    text +=
        base::str(text.empty() ? "" : " ", end - core, threads == 1 ? "" : base::str("x", threads));
    core = end;
  }
  return text;
}

nlohmann::json packages_of(const plan::Host& host) {
  nlohmann::json packages = nlohmann::json::array();
  for (const plan::Package& package : host.packages) {
    nlohmann::json caches = nlohmann::json::array();
    for (const plan::CacheGroup& cache : package.caches) caches.push_back(cache_text(cache));
    packages.push_back(std::move(caches));
  }
  return packages;
}

}  // namespace

plan::Topology read_topology(const std::string& path) { return TopologyReader(path).read(); }

std::string topology_as_toml(const plan::Topology& topology) {
  std::string text =
      "# Hosts that are alike; packages, in each its last-level caches: cores x threads.\n";
  for (auto host = topology.hosts.begin(); host != topology.hosts.end();) {
    const nlohmann::json packages = packages_of(*host);
    nlohmann::json names = nlohmann::json::array();
    for (; host != topology.hosts.end() && packages_of(*host) == packages; ++host) {
      names.push_back(host->name);
    }
    // Lists of texts are written alike in JSON and TOML.
    text +=
        base::str("[[hosts]]\nnames = ", names.dump(), "\npackages = ", packages.dump(), "\n\n");
  }
  text += "# What joins two ranks that share no more than this; 1 GB is 10^9 bytes.\n";
  for (const plan::LinkLevel level : plan::kLinkLevels) {
    const plan::Link& link = topology.link(level);
    const char* comment = link.assumed ? "# " : "";
    text += base::str(comment, "[links.", name_of(level), "]", link.assumed ? "  # assumed" : "",
                      "\n", comment, "latency_us = ", number_text(link.latency_s * 1e6), "\n",
                      comment, "gb_per_s = ", number_text(link.bytes_per_second / 1e9), "\n");
  }
  return text;
}

}  // namespace lockstep::cli
