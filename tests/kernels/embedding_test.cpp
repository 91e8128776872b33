// Rows gathered and scattered, against plain code: equal bits, and in the order of the tokens.
#include "lockstep/kernels/embedding.h"

#include "tests/kernels/spans.h"

namespace lockstep::kernels {
namespace {

constexpr int64_t kSamples = 3, kSequence = 5, kTokens = kSamples * kSequence, kRows = 4;

std::vector<int64_t> ids() {
  const base::RandomKey key(9);
  std::vector<int64_t> all;
  for (uint64_t t = 0; t < kTokens; ++t) all.push_back(static_cast<int64_t>(key.below(t, kRows)));
  return all;
}

TEST(Embedding, SameBitsAtEachWidth) {
  for (int64_t width = 1; width <= kLongest; ++width) {
    const std::vector<float> table = span_of(1, kRows * width);
    const std::vector<float> positions = span_of(2, kSequence * width);
    for (const bool with_positions : {true, false}) {
      std::vector<float> got(kTokens * width), expected(got.size());
      for (int64_t t = 0; t < kTokens; ++t) {
        for (int64_t i = 0; i < width; ++i) {
          expected[t * width + i] = table[ids()[t] * width + i];
          if (with_positions) {
            expected[t * width + i] += positions[t % kSequence * width + i];
          }
        }
      }
      embedding(got.data(), ids().data(), kTokens, table.data(),
                with_positions ? positions.data() : nullptr, kSequence, width);
      expect_same_bits(got, expected);
    }
  }
}

TEST(Embedding, GradientsSumInTheOrderOfTokensAndSamples) {
  for (const int64_t width : {1, 16, 19, 70}) {
    const std::vector<float> dx = span_of(3, kTokens * width, 1e3);
    std::vector<float> d_table(kRows * width), d_positions(kSequence * width, -7.0f);
    std::vector<float> expected = d_table, expected_positions = d_positions;
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t i = 0; i < width; ++i) {
        expected[ids()[t] * width + i] += dx[t * width + i];
        float& of_position = expected_positions[t % kSequence * width + i];
        of_position = t < kSequence ? dx[t * width + i] : of_position + dx[t * width + i];
      }
    }
    embedding_backward(d_table.data(), ids().data(), kTokens, dx.data(), width);
    positions_backward(d_positions.data(), dx.data(), kSamples, kSequence, width);
    expect_same_bits(d_table, expected);
    expect_same_bits(d_positions, expected_positions);
  }
}

TEST(Embedding, OfNoSampleHasPositionsWithoutGradient) {
  std::vector<float> d_positions(6, -7.0f);
  positions_backward(d_positions.data(), nullptr, 0, 2, 3);
  expect_same_bits(d_positions, std::vector<float>(6));
}

}  // namespace
}  // namespace lockstep::kernels
