/// State of an optimizer: so many fp32 numbers for each element of its spans, at first zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/base/assert.h"
#include "lockstep/optim/span.h"

namespace lockstep::optim::detail {

class Moments {
 public:
  Moments(int kinds, const std::vector<Span>& spans) {
    int64_t count = 0;
    for (const Span& span : spans) {
      LOCKSTEP_ASSERT(span.count >= 0, "a span has a length");
      starts_.push_back(count);
      count += span.count;
    }
    values_.assign(static_cast<size_t>(kinds), std::vector<float>(static_cast<size_t>(count)));
  }

  float* of(int kind, size_t span) {
    return values_[static_cast<size_t>(kind)].data() + starts_[span];
  }
  /// Null for a kind that there is not.
  const float* find(int kind, size_t span) const {
    if (kind >= static_cast<int>(values_.size())) return nullptr;
    return values_[static_cast<size_t>(kind)].data() + starts_[span];
  }

  int64_t bytes() const {
    int64_t bytes = 0;
    for (const auto& kind : values_) bytes += static_cast<int64_t>(kind.size() * sizeof(float));
    return bytes;
  }

 private:
  std::vector<std::vector<float>> values_;  // by kind, of all spans back to back
  std::vector<int64_t> starts_;             // by span
};

}  // namespace lockstep::optim::detail
