/// What a picture looks like to the model: its points as floats, moved and mirrored at random.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/base/counter_random.h"
#include "lockstep/files/picture_file.h"

namespace lockstep::detail {

/// How a picture is moved: down and right by so many points, then mirrored.
struct Shift {
  int64_t down = 0;
  int64_t right = 0;
  bool mirrored = false;
};

/// Up to 2 points each way, mirrored half of the time; three draws of `key`.
inline Shift drawn_shift(const base::RandomKey& key) {
  constexpr int64_t kMost = 2;
  return {.down = static_cast<int64_t>(key.below(0, 2 * kMost + 1)) - kMost,
          .right = static_cast<int64_t>(key.below(1, 2 * kMost + 1)) - kMost,
          .mirrored = key.below(2, 2) == 1};
}

/// 0..255 becomes -1..1; what comes from outside of the picture is black.
inline void place(const std::vector<uint8_t>& points, const files::PictureShape& shape,
                  const Shift& shift, float* out) {
  for (int64_t row = 0; row < shape.rows; ++row) {
    for (int64_t column = 0; column < shape.columns; ++column) {
      const int64_t from_row = row - shift.down;
      const int64_t seen = shift.mirrored ? shape.columns - 1 - column : column;
      const int64_t from_column = seen - shift.right;
      const bool inside =
          from_row >= 0 && from_row < shape.rows && from_column >= 0 && from_column < shape.columns;
      const uint8_t point =
          inside ? points[static_cast<size_t>(from_row * shape.columns + from_column)] : 0;
      *out++ = static_cast<float>(point) / 127.5f - 1;
    }
  }
}

}  // namespace lockstep::detail
