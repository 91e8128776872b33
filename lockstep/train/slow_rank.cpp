#include "lockstep/train/slow_rank.h"

#include <algorithm>

#include "lockstep/base/number_text.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

// Ranks that share a machine with others differ by a third and more from one moment to the next.
constexpr double kSlowFactor = 1.5;

std::string milliseconds(double seconds, int64_t steps) {
  return base::fixed_text(1e3 * seconds / static_cast<double>(steps), 1) + " ms";
}

}  // namespace

std::optional<SlowRank> find_slow_rank(const std::vector<double>& own_seconds) {
  if (own_seconds.size() < 2) return std::nullopt;
  const auto most = std::max_element(own_seconds.begin(), own_seconds.end());
  std::vector<double> others(own_seconds.begin(), most);
  others.insert(others.end(), most + 1, own_seconds.end());
  const auto middle = others.begin() + static_cast<std::ptrdiff_t>(others.size() / 2);
  std::nth_element(others.begin(), middle, others.end());
  if (*most <= kSlowFactor * *middle) return std::nullopt;
  return SlowRank{static_cast<int>(most - own_seconds.begin()), *most, *middle};
}

std::string describe(const SlowRank& slow, int64_t steps) {
  return base::str("rank ", slow.rank, " is slow: ", milliseconds(slow.seconds, steps),
                   " of its own work a step, the others ", milliseconds(slow.others, steps));
}

}  // namespace lockstep
