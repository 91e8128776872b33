/// Spans by blocks that a cache holds, each of whole chunks of a norm but the last.
#pragma once

#include <algorithm>
#include <cstdint>

#include "lockstep/plan/norm_chunks.h"

namespace lockstep::optim::detail {

inline constexpr int64_t kBlock = 16 * plan::kNormChunk;

/// Calls body(lo, size, chunk) for each block: its first element, its elements, its first chunk.
template <class Body>
void for_each_block(int64_t count, const Body& body) {
  for (int64_t lo = 0; lo < count; lo += kBlock) {
    body(lo, std::min(kBlock, count - lo), lo / plan::kNormChunk);
  }
}

}  // namespace lockstep::optim::detail
