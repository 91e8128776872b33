#include "lockstep/plan/digest.h"

#include <limits>
#include <vector>

#include "tests/plan/property.h"

namespace lockstep::plan {
namespace {

Digest digest_of(std::string_view name, const std::vector<float>& values, int64_t first = 0) {
  Digest digest;
  digest.add(name, first, values.data(), static_cast<int64_t>(values.size()));
  return digest;
}

// The values were computed from the definition by another program.
TEST(Digest, IsPinned) {
  EXPECT_EQ(Digest{}.text(), "00000000000000000000000000000000");
  Digest digest = digest_of("w", {1, 2});
  EXPECT_EQ(digest.text(), "282d1914c332f00b3f513d78e08de516");
  digest.add(digest_of("layer.bias", {-0.0f, 0.1f, std::numeric_limits<float>::infinity()}));
  EXPECT_EQ(digest.text(), "f106619e29d6b2c5b20de3b9a6ebc211");
}

RC_GTEST_PROP(Digest, NoCutAndNoOrderChangesIt, ()) {
  const auto values = *rc::gen::arbitrary<std::vector<float>>();
  const auto size = static_cast<int64_t>(values.size());
  const Digest whole = digest_of("name", values);
  const int64_t cut = *rc::gen::inRange<int64_t>(0, size + 1);
  Digest pieces;
  pieces.add("name", cut, values.data() + cut, size - cut);
  pieces.add("name", 0, values.data(), cut);
  RC_ASSERT(pieces == whole);
}

TEST(Digest, SeesNamePlaceAndEveryBit) {
  const Digest digest = digest_of("w", {1, 2});
  EXPECT_NE(digest_of("v", {1, 2}), digest);
  EXPECT_NE(digest_of("w", {2, 1}), digest);
  EXPECT_NE(digest_of("w", {1, 2}, 1), digest);
  EXPECT_NE(digest_of("w", {1, 2, 0}), digest);
  EXPECT_NE(digest_of("w", {0.0f}), digest_of("w", {-0.0f}));
  EXPECT_NE(digest_of("w", {1}), digest_of("w", {std::nextafter(1.0f, 2.0f)}));
}

}  // namespace
}  // namespace lockstep::plan
