#include "lockstep/base/hash.h"

#include <gtest/gtest.h>

#include <bit>

namespace lockstep::base {
namespace {

// Digests and checkpoints hold values made from these: they never change.
TEST(Hash, IsPinned) {
  EXPECT_EQ(mix64(0), 0xe220a8397b1dcdafull);
  EXPECT_EQ(mix64(1), 0x910a2dec89025cc1ull);
  EXPECT_EQ(fnv1a(""), 0xcbf29ce484222325ull);
  EXPECT_EQ(fnv1a("a"), 0xaf63dc4c8601ec8cull);
  EXPECT_EQ(fnv1a("foobar"), 0x85944171f73967e8ull);
}

TEST(Hash, TakesBytesAsUnsigned) {
  // The last step of FNV-1a on 0xff, from the empty hash.
  EXPECT_EQ(fnv1a("\xff"), (0xcbf29ce484222325ull ^ 0xffull) * 0x100000001b3ull);
}

TEST(Hash, EveryInputBitReachesAboutHalfOfTheOutput) {
  for (int bit = 0; bit < 64; ++bit) {
    int changed = 0;
    for (uint64_t x = 0; x < 64; ++x) {
      changed += std::popcount(mix64(x * 977) ^ mix64((x * 977) ^ (uint64_t{1} << bit)));
    }
    EXPECT_NEAR(changed / 64.0, 32, 4) << "bit " << bit;
  }
}

}  // namespace
}  // namespace lockstep::base
