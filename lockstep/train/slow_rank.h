/// Which rank the others wait for: by the time that each spends on work of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct SlowRank {
  int rank = 0;
  double seconds = 0;  // its own work
  double others = 0;   // the median of the others'
};

/// The rank with the most work of its own, if that is more than 1.5 times the median of the
/// others'. `own_seconds`: by rank, over the same steps, without waiting for peers.
std::optional<SlowRank> find_slow_rank(const std::vector<double>& own_seconds);

/// "rank 3 is slow: 212 ms of its own work a step, the others 94 ms"
std::string describe(const SlowRank& slow, int64_t steps);

}  // namespace lockstep
