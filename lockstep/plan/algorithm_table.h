/// Which algorithm carries a collective out: the first rule that fits, else direct.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "lockstep/plan/collective_steps.h"

namespace lockstep::plan {

struct AlgorithmRule {
  Collective operation = Collective::all_reduce;
  Algorithm algorithm = Algorithm::direct;
  int64_t most_bytes = std::numeric_limits<int64_t>::max();  // of a rank's tensor
  bool operator==(const AlgorithmRule&) const = default;
};

/// The same on every rank of a job: it decides what messages they exchange.
struct AlgorithmTable {
  std::vector<AlgorithmRule> rules;
  /// The ranks of each host, by world rank, for hierarchical; empty: all are on one.
  std::vector<std::vector<int>> hosts;

  Algorithm choose(Collective operation, int64_t bytes) const;
  bool operator==(const AlgorithmTable&) const = default;
};

/// From here on the latency of a network, twice more than direct has, is small beside the bytes
/// that hierarchical saves.
inline constexpr int64_t kHierarchicalBytes = 32 << 10;

/// Of a group whose ranks are on several hosts: `given` with the hosts, if it has none, and unless
/// it says otherwise with hierarchical all-reduces where those keep the bits. `group_hosts`: its
/// own ranks by host; `job_hosts`: those of the job.
AlgorithmTable over_hosts(AlgorithmTable given, const std::vector<std::vector<int>>& group_hosts,
                          const std::vector<std::vector<int>>& job_hosts);

/// {"rules": [{"operation": "all_reduce", "algorithm": "halving", "up_to_bytes": 4096}, ...],
/// "hosts": [[0, 1], [2, 3]]}, and back. Throws UsageError for what is no such thing.
nlohmann::json to_json(const AlgorithmTable& table);
AlgorithmTable algorithm_table_from_json(const nlohmann::json& json);

}  // namespace lockstep::plan
