#include "lockstep/base/counter_random.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

namespace lockstep::base {
namespace {

/// x for which mix64(x) == y: the shifts and products undone in reverse.
uint64_t unmix64(uint64_t y) {
  const auto unshifted = [](uint64_t v, int by) {
    uint64_t x = v;
    for (int i = by; i < 64; i += by) x = v ^ (x >> by);
    return x;
  };
  const auto inverse = [](uint64_t odd) {  // modulo 2^64, by Newton's iteration
    uint64_t x = odd;
    for (int i = 0; i < 6; ++i) x *= 2 - odd * x;
    return x;
  };
  y = unshifted(y, 31) * inverse(0x94d049bb133111ebull);
  y = unshifted(y, 27) * inverse(0xbf58476d1ce4e5b9ull);
  return unshifted(y, 30) - 0x9e3779b97f4a7c15ull;
}

/// The counter at which `key` draws the word `bits`: lets a test reach draws that are rare.
uint64_t counter_of(const RandomKey& key, uint64_t bits) {
  return unmix64(bits) - unmix64(key.bits(0));
}

double upper_tail(double x) { return 0.5 * std::erfc(x / std::sqrt(2.0)); }

const RandomKey kKey = RandomKey(1337).with("init").with("blocks.0.weight");

TEST(RandomKey, IsPinned) {
  const RandomKey key = RandomKey(1337).with("dropout").with(7);
  EXPECT_EQ(key.bits(0), 0x6966f11f99f5f778ull);
  EXPECT_EQ(key.bits(1), 0xbbe36ef5941c3771ull);
  EXPECT_EQ(key.bits(12345), 0x9351f4b083c30eb3ull);
}

TEST(RandomKey, EveryPartOfTheKeyCounts) {
  const RandomKey key = RandomKey(1).with("a").with(2);
  EXPECT_NE(key.bits(0), RandomKey(2).with("a").with(2).bits(0));
  EXPECT_NE(key.bits(0), RandomKey(1).with("b").with(2).bits(0));
  EXPECT_NE(key.bits(0), RandomKey(1).with("a").with(3).bits(0));
  EXPECT_NE(key.bits(0), RandomKey(1).with(2).with("a").bits(0)) << "order counts";
  EXPECT_NE(RandomKey(1).with(0).bits(0), RandomKey(1).bits(0));
}

TEST(RandomKey, UniformStaysInsideTheOpenInterval) {
  const uint64_t lowest = counter_of(kKey, 0);
  const uint64_t highest = counter_of(kKey, ~uint64_t{0});
  ASSERT_EQ(kKey.bits(lowest), 0u);
  ASSERT_EQ(kKey.bits(highest), ~uint64_t{0});
  EXPECT_EQ(kKey.uniform(lowest), 0x1p-53);
  EXPECT_EQ(kKey.uniform(highest), 1 - 0x1p-53);
}

TEST(RandomKey, BelowIsEvenAndInRange) {
  std::vector<int> times(7);
  constexpr int kDraws = 70'000;
  for (uint64_t i = 0; i < kDraws; ++i) ++times.at(kKey.below(i, 7));
  for (const int time : times) EXPECT_NEAR(time, kDraws / 7, 5 * std::sqrt(kDraws / 7.0));
  EXPECT_EQ(kKey.below(3, 1), 0u);
  EXPECT_EQ(kKey.below(counter_of(kKey, ~uint64_t{0}), 1000), 999u);
}

// The bits of these draws are the start of every model; a compiler flag or a machine that changes
// them changes what a seed means.
TEST(RandomKeyNormal, IsPinnedInBits) {
  const std::vector<double> expected = {0x1.66b8af2eac325p-1,  -0x1.3534f551eef04p+1,
                                        -0x1.926bae9172edp-3,  -0x1.8e5e9881d4a4bp-1,
                                        -0x1.b365302cb99b1p-1, 0x1.0ab87592392b6p-7};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(kKey.normal(i), expected[i]) << i;
}

TEST(RandomKeyNormal, InvertsTheDistribution) {
  for (uint64_t i = 0; i < 100'000; ++i) {
    const double p = kKey.uniform(i);
    const double x = kKey.normal(i);
    // The smaller tail: the other one is near 1, where nothing can be told from its digits.
    const double back = p < 0.5 ? upper_tail(-x) : upper_tail(x);
    ASSERT_NEAR(back / (p < 0.5 ? p : 1 - p), 1, 1e-13) << "at p = " << p;
  }
}

// No sample of a test reaches the far tail, where a third formula holds; these counters do.
TEST(RandomKeyNormal, InvertsTheDistributionInTheTails) {
  for (int zeros = 0; zeros <= 52; ++zeros) {
    for (const uint64_t pattern : {0x0000000000000000ull, 0x5555555555555555ull}) {
      const uint64_t low_word = zeros == 0 ? pattern : pattern >> zeros;
      const uint64_t low = counter_of(kKey, low_word);
      const uint64_t high = counter_of(kKey, ~low_word);
      const double x = kKey.normal(low);
      ASSERT_NEAR(upper_tail(-x) / kKey.uniform(low), 1, 1e-12) << zeros << " zero bits";
      ASSERT_EQ(kKey.normal(high), -x) << "the distribution is symmetric, exactly";
    }
  }
  // The farthest draws there are: p = 2^-53.
  EXPECT_NEAR(kKey.normal(counter_of(kKey, 0)), -8.2095361516013874, 1e-12);
}

TEST(RandomKeyNormal, RisesAcrossTheSeamsOfItsFormulas) {
  // p = 0.075 and 0.925, and p = exp(-25), where one formula takes over from another.
  for (const double seam : {0.075, 0.925, std::exp(-25.0)}) {
    const auto middle = static_cast<uint64_t>(seam * 0x1p52);
    double before = -INFINITY;
    for (uint64_t step = 0; step < 64; ++step) {
      const double x = kKey.normal(counter_of(kKey, (middle - 32 + step) << 12));
      ASSERT_GT(x + 1e-12, before);
      before = x;
    }
  }
}

TEST(RandomKeyNormal, HasTheMomentsOfANormal) {
  constexpr int kDraws = 100'000;
  double sum = 0;
  double squares = 0;
  double cubes = 0;
  double fourths = 0;
  for (uint64_t i = 0; i < kDraws; ++i) {
    const double x = kKey.normal(i);
    sum += x;
    squares += x * x;
    cubes += x * x * x;
    fourths += x * x * x * x;
  }
  const double deviation = 1 / std::sqrt(double{kDraws});  // of the mean
  EXPECT_NEAR(sum / kDraws, 0, 4 * deviation);
  EXPECT_NEAR(squares / kDraws, 1, 4 * std::sqrt(2.0) * deviation);
  EXPECT_NEAR(cubes / kDraws, 0, 4 * std::sqrt(15.0) * deviation);
  EXPECT_NEAR(fourths / kDraws, 3, 4 * std::sqrt(96.0) * deviation);
}

}  // namespace
}  // namespace lockstep::base
