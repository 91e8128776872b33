#include "lockstep/plan/algorithm_table.h"

namespace lockstep::plan {

Algorithm AlgorithmTable::choose(Collective operation, int64_t bytes) const {
  for (const AlgorithmRule& rule : rules) {
    if (rule.operation == operation && bytes <= rule.most_bytes) return rule.algorithm;
  }
  return Algorithm::direct;
}

}  // namespace lockstep::plan
