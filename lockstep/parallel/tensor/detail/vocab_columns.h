/// Which columns of a divided vocabulary a grain has.
#pragma once

#include <algorithm>
#include <cstdint>

namespace lockstep::parallel::detail {

struct VocabColumns {
  int first_grain = 0;  // of this rank
  int64_t vocab = 0;
  int64_t of_grain = 0;  // columns, with those that pad

  /// The first column of the rank's grain i.
  int64_t first(size_t i) const { return (first_grain + static_cast<int64_t>(i)) * of_grain; }
  /// Columns of it that are tokens.
  int64_t real(size_t i) const { return std::clamp<int64_t>(vocab - first(i), 0, of_grain); }
};

}  // namespace lockstep::parallel::detail
