/// Sums and maxima along a row; sums in a fixed order: 16 lanes, lane i taking elements i, i + 16, ...; then the
/// lane tree: lane i + lane i + 8, those i + 4, i + 2, i + 1.
#pragma once

#include <cstdint>
#include <limits>

namespace lockstep::kernels::detail {

/// Of term(0), ... term(count - 1).
template <class Term>
[[gnu::always_inline]] inline float lane_sum(int64_t count, const Term& term) {
  float lanes[16] = {};
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (int64_t lane = 0; lane < 16; ++lane) lanes[lane] += term(i + lane);
  }
  for (int64_t lane = 0; i + lane < count; ++lane) lanes[lane] += term(i + lane);
  for (int64_t half = 8; half > 0; half /= 2) {
    for (int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

/// The largest of values[0], ... values[count - 1]; -inf of none. Free of order.
[[gnu::always_inline]] inline float lane_max(const float* values, int64_t count) {
  float lanes[16];
  for (float& lane : lanes) lane = -std::numeric_limits<float>::infinity();
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (int64_t lane = 0; lane < 16; ++lane) {
      lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
    }
  }
  for (int64_t lane = 0; i + lane < count; ++lane) {
    lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
  }
  for (int64_t half = 8; half > 0; half /= 2) {
    for (int64_t lane = 0; lane < half; ++lane) {
      lanes[lane] = lanes[lane + half] > lanes[lane] ? lanes[lane + half] : lanes[lane];
    }
  }
  return lanes[0];
}

}  // namespace lockstep::kernels::detail
