#include "lockstep/files/token_data.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/files/bpe_tokenizer.h"
#include "lockstep/files/byte_tokenizer.h"
#include "lockstep/files/detail/piece_splitter.h"
#include "lockstep/files/sha256.h"
#include "lockstep/files/temp_folder.h"
#include "tests/files/on_disk.h"

namespace lockstep::files {
namespace {

using on_disk::message_of;

void write_byte_tokens(const std::string& folder, std::string_view text,
                       const std::string& source) {
  ByteTokenizer bytes;
  write_token_data(text, bytes, {.folder = folder, .source = source});
}

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
  EXPECT_EQ(meta->dtype, "uint16");
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

// ---- several documents, another tokenizer

/// Bytes, then "th" (256), and an end of text (300).
std::unique_ptr<Tokenizer> small_bpe() {
  BpeVocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
  }
  vocabulary.tokens.emplace_back("th");
  for (int rank = 0; rank < 257; ++rank) vocabulary.ranks.push_back(rank);
  return make_bpe_tokenizer(vocabulary, {.name = "small",
                                         .pattern = detail::kGpt2Pattern,
                                         .special = {{"<|end|>", 300}},
                                         .end_of_text = 300});
}

std::vector<int64_t> ids_in(const std::string& path) {
  const std::string bytes = on_disk::get(path);
  std::vector<int64_t> ids;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    ids.push_back(static_cast<unsigned char>(bytes[i]) | static_cast<unsigned char>(bytes[i + 1])
                                                             << 8);
  }
  return ids;
}

TEST(TokenData, DocumentsOfAFolderAreSeparatedInTheOrderOfTheirPaths) {
  const TempFolder folder("tokens-test");
  const std::string texts = folder.file("texts");
  std::filesystem::create_directories(texts + "/b");
  on_disk::put(texts + "/c.txt", "last one!!");  // bytes 25 to 35 of 35
  on_disk::put(texts + "/a.txt", "the");
  on_disk::put(texts + "/b/x.jsonl", "{\"text\": \"th\"}\n\n{\"text\":1}");
  on_disk::put(texts + "/notes.md", "not read");
  const auto tokenizer = small_bpe();
  const TokenDataOptions options{
      .folder = folder.file("out"), .source = "texts", .valid_fraction = 0.2};
  const std::string message =
      message_of<EnvironmentError>([&] { write_token_data_of(texts, *tokenizer, options); });
  EXPECT_NE(message.find("x.jsonl: line 3 is no JSON object with a \"text\""), std::string::npos)
      << message;
  EXPECT_FALSE(std::filesystem::exists(options.folder + "/train.bin"));
  EXPECT_EQ(on_disk::files_in(options.folder), 0) << "no half files stay";

  on_disk::put(texts + "/b/x.jsonl", "{\"text\": \"th\"}\n\n \r\n\n\n\n");
  const auto counts = write_token_data_of(texts, *tokenizer, options);
  EXPECT_EQ(counts.documents, 3);
  // 3 + 22 + 10 bytes: validation begins 28 bytes in, in the third document.
  EXPECT_EQ(ids_in(options.folder + "/train.bin"),
            (std::vector<int64_t>{256, 'e', 300, 256, 300, 'l', 'a', 's'}));
  EXPECT_EQ(ids_in(options.folder + "/val.bin"),
            (std::vector<int64_t>{'t', ' ', 'o', 'n', 'e', '!', '!', 300}));
  const auto meta = nlohmann::json::parse(on_disk::get(options.folder + "/meta.json"));
  EXPECT_EQ(meta["train_tokens"], 8);
  EXPECT_EQ(meta["documents"], 3);
  EXPECT_EQ(meta["vocab_size"], 301);
  EXPECT_EQ(meta["sha256"], sha256_hex("theth"
                                       "last one!!"));
}

TEST(TokenData, ACharacterIsNotCut) {
  const TempFolder folder("tokens-test");
  const auto tokenizer = small_bpe();
  write_token_data("a\u4e2d\u4e2d", *tokenizer, {.folder = folder.path(), .valid_fraction = 0.4});
  EXPECT_EQ(ids_in(folder.file("train.bin")).size(), 4u) << "byte 4 of 7 begins a character";
  write_token_data("a\u4e2d\u4e2d", *tokenizer, {.folder = folder.path(), .valid_fraction = 0.2});
  EXPECT_EQ(ids_in(folder.file("train.bin")).size(), 4u) << "byte 5 does not";
  ByteTokenizer bytes;
  write_token_data("a\u4e2d\u4e2d", bytes, {.folder = folder.path(), .valid_fraction = 0.2});
  EXPECT_EQ(ids_in(folder.file("train.bin")).size(), 5u) << "a token is a byte";
}

/// More than the pieces that are read at once, without and with places to cut.
TEST(TokenData, PiecesHaveTheTokensOfTheWhole) {
  const TempFolder folder("tokens-test");
  const auto tokenizer = small_bpe();
  for (const char* word : {"th th,", "thththth"}) {
    std::string text;
    while (text.size() < 9'000'000) text += word;
    int64_t told = 0;
    write_token_data(text, *tokenizer,
                     {.folder = folder.path(), .progress = [&](int64_t done, int64_t all, int64_t) {
                        EXPECT_GT(done, told);
                        EXPECT_EQ(all, std::ssize(text));
                        told = done;
                      }});
    EXPECT_EQ(told, std::ssize(text));
    auto ids = ids_in(folder.file("train.bin"));
    const auto rest = ids_in(folder.file("val.bin"));
    const size_t cut = text.size() / 10 * 9 + text.size() % 10 * 9 / 10;
    EXPECT_EQ(ids, tokenizer->encode(std::string_view(text).substr(0, cut)));
    EXPECT_EQ(rest, tokenizer->encode(std::string_view(text).substr(cut)));
  }
}

TEST(TokenData, WhatIsNoTextIsNamed) {
  const TempFolder folder("tokens-test");
  const std::string path = folder.file("x");
  ByteTokenizer bytes;
  for (const auto& [start, named] : std::vector<std::pair<std::string, std::string>>{
           {std::string("PK\x03\x04", 4), "zip"}, {std::string("\x1f\x8b\x08\0", 4), "gzip"}}) {
    on_disk::put(path, start + std::string(100, '\0'));
    const std::string message = message_of<EnvironmentError>(
        [&] { write_token_data_of(path, bytes, {.folder = folder.file("out")}); });
    EXPECT_NE(message.find(named), std::string::npos) << message;
  }
  EXPECT_NE(message_of<EnvironmentError>([&] {
              write_token_data_of(folder.path(), bytes, {.folder = folder.file("out")});
            }).find("no .txt or .jsonl file below"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::files
