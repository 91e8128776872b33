#include "lockstep/files/token_data.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/files/sha256.h"
#include "lockstep/files/temp_folder.h"
#include "tests/files/on_disk.h"

namespace lockstep::files {
namespace {

using on_disk::message_of;

TEST(TokenData, NineTenthsTrain) {
  const TempFolder folder("tokens-test");
  for (const size_t size : {2u, 9u, 10u, 11u, 19u, 101u}) {
    write_byte_tokens(folder.path(), std::string(size, 'a'), "letters");
    EXPECT_EQ(on_disk::get(folder.file("train.bin")).size(), 2 * (size * 9 / 10)) << size;
    EXPECT_EQ(on_disk::get(folder.file("val.bin")).size(), 2 * (size - size * 9 / 10)) << size;
  }
}

TEST(TokenData, TokensAreLittleEndianWordsOfTheBytes) {
  const TempFolder folder("tokens-test");
  const std::string out = folder.file("a folder/deep");
  write_byte_tokens(out, "ab\xff\n", "a \xff \"source\"");
  EXPECT_EQ(on_disk::get(out + "/train.bin"), std::string("a\0b\0\xff\0", 6));
  EXPECT_EQ(on_disk::get(out + "/val.bin"), std::string("\n\0", 2));
  const auto meta = read_token_meta(out + "/val.bin");
  ASSERT_TRUE(meta);
  EXPECT_EQ(meta->tokenizer, "bytes");
  EXPECT_EQ(meta->vocab_size, 256);
  EXPECT_EQ(meta->sha256, sha256_hex("ab\xff\n"));
  EXPECT_EQ(on_disk::files_in(out), 3);
}

TEST(TokenData, SeveralPieces) {
  const TempFolder folder("tokens-test");
  std::string text;
  for (int i = 0; i < 3'000'000; ++i) text += static_cast<char>(i % 251);
  write_byte_tokens(folder.path(), text, "numbers");
  const std::string tokens = on_disk::get(folder.file("train.bin"));
  ASSERT_EQ(tokens.size(), 5'400'000u);
  bool same = true;
  for (size_t i = 0; i < tokens.size() / 2; ++i) {
    same = same && tokens[2 * i] == text[i] && tokens[2 * i + 1] == 0;
  }
  EXPECT_TRUE(same);
  EXPECT_TRUE(holds_byte_tokens(folder.path(), sha256_hex(text)));
}

TEST(TokenData, OnlyWholeAndTrueDataCountAsThere) {
  const TempFolder folder("tokens-test");
  const std::string sha256 = sha256_hex("some text");
  EXPECT_FALSE(holds_byte_tokens(folder.path(), sha256));
  const auto prepare = [&] { write_byte_tokens(folder.path(), "some text", "test"); };
  prepare();
  EXPECT_TRUE(holds_byte_tokens(folder.path(), sha256));
  EXPECT_FALSE(holds_byte_tokens(folder.path(), sha256_hex("other")));
  const auto spoilt_by = [&](const std::string& name, std::string_view bytes) {
    prepare();
    on_disk::put(folder.file(name), bytes);
    return !holds_byte_tokens(folder.path(), sha256);
  };
  EXPECT_TRUE(spoilt_by("train.bin", "s\0o\0"));
  EXPECT_TRUE(spoilt_by("val.bin", ""));
  EXPECT_TRUE(spoilt_by("val.bin", "t"));
  EXPECT_TRUE(spoilt_by("val.bin", std::string_view("t\1", 2)));
  EXPECT_TRUE(spoilt_by("meta.json", "{"));
  prepare();
  std::filesystem::remove(folder.file("meta.json"));
  EXPECT_FALSE(holds_byte_tokens(folder.path(), sha256));
}

TEST(TokenData, MetaIsOptionalButNotArbitrary) {
  const TempFolder folder("tokens-test");
  EXPECT_FALSE(read_token_meta(folder.file("train.bin")));
  for (const char* bad : {"", "{}", "[1]", "{\"tokenizer\":3,\"vocab_size\":256}",
                          "{\"tokenizer\":\"bytes\",\"vocab_size\":\"many\"}"}) {
    on_disk::put(folder.file("meta.json"), bad);
    const std::string message =
        message_of<EnvironmentError>([&] { read_token_meta(folder.file("train.bin")); });
    EXPECT_NE(message.find("meta.json"), std::string::npos) << bad;
  }
}

TEST(TokenData, TooLittleTextOrNoRoomIsAnError) {
  const TempFolder folder("tokens-test");
  for (const char* text : {"", "x"}) {
    EXPECT_NE(message_of<EnvironmentError>([&] { write_byte_tokens(folder.path(), text, "t"); }),
              "");
  }
  on_disk::put(folder.file("taken"), "");
  EXPECT_NE(message_of<EnvironmentError>([&] {
              write_byte_tokens(folder.file("taken"), "text", "t");
            }).find("taken"),
            std::string::npos);
  const on_disk::FileSizeLimit full(1000);
  const std::string message = message_of<StateError>(
      [&] { write_byte_tokens(folder.path(), std::string(10'000, 'a'), "t"); });
  EXPECT_NE(message.find("train.bin"), std::string::npos) << message;
  EXPECT_EQ(on_disk::files_in(folder.path()), 1);
}

}  // namespace
}  // namespace lockstep::files
