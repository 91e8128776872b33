#include <gtest/gtest.h>

#include "lockstep/files/crc32c.h"
#include "lockstep/files/sha256.h"

namespace lockstep::files {
namespace {

TEST(Sha256, KnownValues) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesOfAnySizeHashAlike) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
  for (size_t length = 0; length <= text.size(); ++length) {
    const std::string_view whole = std::string_view(text).substr(0, length);
    for (const size_t piece : {1u, 7u, 63u, 64u, 65u}) {
      Sha256 hash;
      for (size_t at = 0; at < length; at += piece) hash.update(whole.substr(at, piece));
      ASSERT_EQ(hash.hex(), sha256_hex(whole)) << length << " bytes in pieces of " << piece;
    }
  }
}

TEST(Crc32c, KnownValues) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
}

}  // namespace
}  // namespace lockstep::files
