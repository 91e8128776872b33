#include "lockstep/plan/algorithm_table.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::plan {

Algorithm AlgorithmTable::choose(Collective operation, int64_t bytes) const {
  for (const AlgorithmRule& rule : rules) {
    if (rule.operation == operation && bytes <= rule.most_bytes) return rule.algorithm;
  }
  return Algorithm::direct;
}

AlgorithmTable over_hosts(AlgorithmTable given, const std::vector<std::vector<int>>& group_hosts,
                          const std::vector<std::vector<int>>& job_hosts) {
  if (given.hosts.empty()) given.hosts = job_hosts;
  const bool says = std::any_of(given.rules.begin(), given.rules.end(), [](const auto& rule) {
    return rule.operation == Collective::all_reduce;
  });
  if (says || !hosts_are_subtrees(group_hosts)) return given;
  given.rules.push_back({Collective::all_reduce, Algorithm::direct, kHierarchicalBytes - 1});
  given.rules.push_back({Collective::all_reduce, Algorithm::hierarchical});
  return given;
}

nlohmann::json to_json(const AlgorithmTable& table) {
  nlohmann::json rules = nlohmann::json::array();
  for (const AlgorithmRule& rule : table.rules) {
    nlohmann::json one = {{"operation", name_of(rule.operation)},
                          {"algorithm", name_of(rule.algorithm)}};
    if (rule.most_bytes != AlgorithmRule{}.most_bytes) one["up_to_bytes"] = rule.most_bytes;
    rules.push_back(std::move(one));
  }
  return {{"rules", std::move(rules)}, {"hosts", table.hosts}};
}

AlgorithmTable algorithm_table_from_json(const nlohmann::json& json) {
  try {
    AlgorithmTable table{.rules = {},
                         .hosts = json.at("hosts").get<std::vector<std::vector<int>>>()};
    for (const nlohmann::json& rule : json.at("rules")) {
      table.rules.push_back({parse_collective(rule.at("operation").get<std::string>()),
                             parse_algorithm(rule.at("algorithm").get<std::string>()),
                             rule.value("up_to_bytes", AlgorithmRule{}.most_bytes)});
    }
    return table;
  } catch (const nlohmann::json::exception& error) {
    throw UsageError(base::str("this is no table of algorithms: ", error.what()));
  }
}

}  // namespace lockstep::plan
