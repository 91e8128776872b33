/// Sums of a row in a fixed order: 16 lanes, lane i taking elements i, i + 16, ...; then the lane
/// tree: lane i + lane i + 8, those i + 4, i + 2, i + 1.
///
/// Floats are added by vector types of the compiler: where two sums run in one loop, GCC 12 makes
/// code from arrays of 16 floats that is seven times slower. One sum alone: lane_sum.h.
#pragma once

#include <cstdint>

namespace lockstep::kernels::detail {

constexpr int64_t kLanes = 16;

using Lanes [[gnu::vector_size(64)]] = float;
/// The same wherever floats lie.
using LanesInMemory [[gnu::vector_size(64), gnu::aligned(4), gnu::may_alias]] = float;

[[gnu::always_inline]] inline const LanesInMemory& lanes_at(const float* values) {
  return *reinterpret_cast<const LanesInMemory*>(values);
}

/// Calls body(element, lane) for each element of [0, count), a whole set of lanes at a time.
template <class Body>
[[gnu::always_inline]] inline void for_each_lane(int64_t count, Body&& body) {
  const int64_t whole = count - count % kLanes;
  for (int64_t first = 0; first < whole; first += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) body(first + lane, lane);
  }
  for (int64_t i = whole; i < count; ++i) body(i, i - whole);
}

/// The sum of the lanes, which are used up.
[[gnu::always_inline]] inline double lane_tree(double (&lane)[kLanes]) {
  for (int64_t i = 0; i < 8; ++i) lane[i] += lane[i + 8];
  for (int64_t i = 0; i < 4; ++i) lane[i] += lane[i + 4];
  return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

[[gnu::always_inline]] inline float lane_tree(const Lanes& lanes) {
  float half[8], quarter[4];
  for (int64_t i = 0; i < 8; ++i) half[i] = lanes[i] + lanes[i + 8];
  for (int64_t i = 0; i < 4; ++i) quarter[i] = half[i] + half[i + 4];
  return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
}

}  // namespace lockstep::kernels::detail
