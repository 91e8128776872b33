#include "lockstep/input/sample_order.h"

#include <algorithm>

#include "lockstep/base/assert.h"
#include "lockstep/base/counter_random.h"
#include "lockstep/input/sampler.h"

namespace lockstep::input {

int64_t SampleOrder::at(int64_t epoch, int64_t position) const {
  LOCKSTEP_ASSERT(size > 0 && position >= 0, "a position in a dataset that has samples");
  position %= size;
  if (!shuffle) return position;
  const auto key = base::RandomKey(seed).with("samples").with(static_cast<uint64_t>(epoch));
  return Permutation(size, key.bits(0))(position);
}

int64_t RankSamples::count() const {
  const int64_t left = std::max<int64_t>(0, order.size - first);
  switch (tail) {
    case Tail::pad:
      return (left + ranks - 1) / ranks;
    case Tail::drop:
      return left / ranks;
    case Tail::keep:
      return (left - rank + ranks - 1) / ranks;
  }
  return 0;
}

}  // namespace lockstep::input
