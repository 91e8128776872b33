/// Steps at the start of a run that no figure of its speed counts.
#pragma once

#include <algorithm>
#include <cstdint>

namespace lockstep::detail {

/// Caches and allocators are still filling.
inline int64_t warmup_of_throughput(int64_t steps) { return std::min<int64_t>(5, steps / 4); }

}  // namespace lockstep::detail
