/// Which algorithm carries a collective out: the first rule that fits, else direct.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "lockstep/plan/collective_steps.h"

namespace lockstep::plan {

struct AlgorithmRule {
  Collective operation;
  Algorithm algorithm;
  int64_t most_bytes = std::numeric_limits<int64_t>::max();  // of a rank's tensor
};

/// The same on every rank of a job: it decides what messages they exchange.
struct AlgorithmTable {
  std::vector<AlgorithmRule> rules;
  /// The ranks of each host, by world rank, for hierarchical; empty: all are on one.
  std::vector<std::vector<int>> hosts;

  Algorithm choose(Collective operation, int64_t bytes) const;
};

}  // namespace lockstep::plan
