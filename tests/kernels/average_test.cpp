#include "lockstep/kernels/average.h"

#include <algorithm>

#include "tests/kernels/spans.h"

namespace lockstep::kernels {
namespace {

TEST(MovingAverage, SameBitsAtEachLengthAndOffset) {
  const double decay = 0.999;
  const auto keep = static_cast<float>(decay);
  const auto add = static_cast<float>(1 - decay);
  for (const int64_t offset : {0, 1, 3, 7, 13}) {
    for (int64_t count = 0; count <= kLongest; ++count) {
      const int64_t size = offset + kLongest + 1;
      std::vector<float> average = span_of(1, size);
      const std::vector<float> values = span_of(2, size, 1e3);
      std::vector<float> expected = average;
      for (auto i = static_cast<size_t>(offset); i < static_cast<size_t>(offset + count); ++i) {
        const float kept = keep * expected[i];
        const float added = add * values[i];
        expected[i] = kept + added;
      }
      moving_average(average.data() + offset, values.data() + offset, count, decay);
      expect_same_bits(average, expected);
    }
  }
}

TEST(SwapSpans, ExchangesWhatItIsGivenAndNoMore) {
  for (const int64_t offset : {0, 1, 3, 7, 13}) {
    for (int64_t count = 0; count <= kLongest; ++count) {
      const int64_t size = offset + kLongest + 1;
      std::vector<float> a = span_of(3, size), b = span_of(4, size);
      std::vector<float> expected_a = a, expected_b = b;
      std::swap_ranges(expected_a.begin() + offset, expected_a.begin() + offset + count,
                       expected_b.begin() + offset);
      swap_spans(a.data() + offset, b.data() + offset, count);
      expect_same_bits(a, expected_a);
      expect_same_bits(b, expected_b);
    }
  }
}

}  // namespace
}  // namespace lockstep::kernels
