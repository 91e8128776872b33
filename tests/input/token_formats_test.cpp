// What the writers of files/token_writer.h write, TokenFile reads; what is damaged is refused.

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <limits>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/files/temp_folder.h"
#include "lockstep/files/token_writer.h"
#include "lockstep/input/token_file.h"
#include "tests/input/token_files.h"

namespace lockstep::input {
namespace {

using files::TokenFormat;
using files::TokenType;
using on_disk::get;
using Ids = std::vector<int64_t>;

class TokenFormats : public ::testing::Test {
 protected:
  /// Writes documents of these sizes, ids 0, 1, 2, ... below `ids`.
  void write(TokenFormat format, TokenType type, const std::vector<int64_t>& sizes,
             int64_t ids = 100) {
    const auto writer = make_token_writer(data_, format, type);
    int64_t next = 0;
    for (const int64_t size : sizes) {
      Ids document;
      for (int64_t i = 0; i < size; ++i) document.push_back(next++ % ids);
      // In two calls, as a long text comes.
      writer->write(Ids(document.begin(), document.begin() + size / 2));
      writer->write(Ids(document.begin() + size / 2, document.end()));
      writer->end_document();
    }
    EXPECT_EQ(writer->tokens(), next);
    writer->commit();
  }

  Ids all(const TokenFile& file) const {
    Ids ids(static_cast<size_t>(file.size()));
    file.read(0, file.size(), ids.data());
    return ids;
  }

  template <class Number>
  void poke(const std::string& path, size_t position, Number number) {
    std::string bytes = get(path);
    ASSERT_LE(position + sizeof number, bytes.size());
    std::memcpy(bytes.data() + position, &number, sizeof number);
    put(path, bytes);
  }

  std::string refusal() const {
    return environment_error([this] { TokenFile::open(data_); });
  }
  void expect_refusal(const std::string& part) const {
    EXPECT_NE(refusal().find(part), std::string::npos) << part << ": " << refusal();
  }

  files::TempFolder folder_{"formats-test"};
  std::string data_ = folder_.file("set.bin");
  std::string index_ = folder_.file("set.idx");
};

TEST_F(TokenFormats, EveryFormatAndTypeComesBackAtOddSizes) {
  const std::vector<std::pair<TokenFormat, std::vector<TokenType>>> formats = {
      {TokenFormat::nanogpt, {TokenType::u16}},
      {TokenFormat::llmc, {TokenType::u16, TokenType::u32}},
      {TokenFormat::megatron,
       {TokenType::u8, TokenType::i8, TokenType::i16, TokenType::i32, TokenType::i64,
        TokenType::u16}}};
  for (const auto& [format, types] : formats) {
    for (const TokenType type : types) {
      for (const auto& sizes :
           std::vector<std::vector<int64_t>>{{1}, {3, 0, 4}, {65'537, 1, 131}}) {
        std::filesystem::remove(index_);
        write(format, type, sizes);
        const auto file = TokenFile::open(data_);
        EXPECT_EQ(file->layout().format, format);
        EXPECT_EQ(file->layout().type, type);
        int64_t tokens = 0;
        Ids starts = {0};
        for (const int64_t size : sizes) starts.push_back(tokens += size);
        ASSERT_EQ(file->size(), tokens);
        const Ids ids = all(*file);
        for (int64_t i = 0; i < tokens; ++i) ASSERT_EQ(ids[static_cast<size_t>(i)], i % 100);
        EXPECT_EQ(file->layout().documents, format == TokenFormat::megatron ? starts : Ids{});
        EXPECT_EQ(file->largest_id(), std::min<int64_t>(tokens, 100) - 1);
      }
    }
  }
}

TEST_F(TokenFormats, TheBytesAreThoseOfTheOtherTools) {
  write(TokenFormat::llmc, TokenType::u16, {3});
  std::string bytes = get(data_);
  ASSERT_EQ(bytes.size(), 1024u + 6u);
  const std::vector<int32_t> head = {20240520, 1, 3, 0};
  EXPECT_EQ(std::memcmp(bytes.data(), head.data(), 16), 0);
  EXPECT_EQ(bytes.substr(1024), std::string("\0\0\1\0\2\0", 6));
  write(TokenFormat::llmc, TokenType::u32, {3});
  bytes = get(data_);
  const std::vector<int32_t> llama = {20240801, 7, 3, 0};
  EXPECT_EQ(std::memcmp(bytes.data(), llama.data(), 16), 0);
  EXPECT_EQ(bytes.size(), 1024u + 12u);

  write(TokenFormat::megatron, TokenType::u16, {2, 1});
  EXPECT_EQ(get(data_), std::string("\0\0\1\0\2\0", 6));
  std::string index("MMIDIDX\0\0", 9);
  const auto add = [&index](auto number) {
    index.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  add(uint64_t{1});
  add(uint8_t{8});
  add(uint64_t{2});
  add(uint64_t{3});
  for (const int32_t length : {2, 1}) add(length);
  for (const int64_t offset : {0, 4}) add(offset);
  for (const int64_t document : {0, 1, 2}) add(document);
  EXPECT_EQ(get(index_), index);
  put(index_, index + std::string(2, '\0'));
  EXPECT_EQ(refusal(), "") << "modes of several media follow";
  EXPECT_EQ(TokenFile::open(index_)->path(), data_) << "an index stands for its data";
}

TEST_F(TokenFormats, WideNanoGptTokensNeedTheSideCar) {
  write(TokenFormat::nanogpt, TokenType::u32, {5});
  EXPECT_EQ(TokenFile::open(data_)->size(), 10);
  put(folder_.file("meta.json"),
      "{\"tokenizer\":\"cl100k\",\"vocab_size\":100277,\"dtype\":\"uint32\"}");
  EXPECT_EQ(all(*TokenFile::open(data_)), (Ids{0, 1, 2, 3, 4}));
  put(data_, get(data_) + "ab");
  expect_refusal("has 22 bytes, no whole number of tokens of 4 bytes");
}

TEST_F(TokenFormats, DamagedLlmcHeadersAreRefusedByPosition) {
  write(TokenFormat::llmc, TokenType::u16, {7});
  const std::string good = get(data_);
  put(data_, good.substr(0, 1000));
  expect_refusal("has 1,000 bytes, less than its header of 1024: it is cut short");
  put(data_, good.substr(0, good.size() - 1));
  expect_refusal("states 7 tokens of 2 bytes at byte 8, and 13 bytes follow its header: it is cut");
  put(data_, good + "ab");
  expect_refusal("16 bytes follow its header.");
  put(data_, good);
  poke<int32_t>(data_, 4, 2);
  expect_refusal("version at byte 4 is 2; known is 1");
  put(data_, good);
  poke<int32_t>(data_, 8, -1);
  expect_refusal("states -1 tokens");
}

TEST_F(TokenFormats, DamagedMegatronIndexesAreRefusedByPosition) {
  write(TokenFormat::megatron, TokenType::i32, {2, 0, 3});
  // 2 sequences: lengths at 34, offsets at 42, documents at 58 (an empty one adds no sequence).
  const std::string good = get(index_);
  ASSERT_EQ(good.size(), 34u + 2 * 12 + 4 * 8);
  const auto damaged = [&](size_t position, auto number, const std::string& part) {
    put(index_, good);
    poke(index_, position, number);
    expect_refusal(part);
    EXPECT_TRUE(refusal().starts_with(index_ + " is no index of " + data_)) << refusal();
  };
  damaged(9, uint64_t{2}, "version at byte 9 is 2");
  damaged(17, uint8_t{7}, "byte 17 says floating point");
  damaged(17, uint8_t{0}, "type code at byte 17 is 0");
  damaged(18, uint64_t{3}, "cut short");
  damaged(18, std::numeric_limits<uint64_t>::max(), "cut short");
  damaged(26, uint64_t{1} << 61, "cut short");
  damaged(26, uint64_t{3}, "8 bytes follow its arrays, from byte 82 on");
  damaged(34, int32_t{-1}, "sequence 0 has length -1 (byte 34)");
  damaged(38, int32_t{4}, "have 6 tokens of 4 bytes, but the data have 20 bytes: they are cut");
  damaged(38, int32_t{2}, "they belong to another index");
  damaged(50, int64_t{4},
          "sequence 1 begins at byte 4 of the data (byte 50), but those before it "
          "end at 8");
  damaged(58, int64_t{1}, "document entry 0 (byte 58) is 1");
  damaged(66, int64_t{3}, "document entry 1 (byte 66) is 3");
  damaged(74, int64_t{0}, "document entry 2 (byte 74) is 0, after 1");
  damaged(82, int64_t{1}, "documents end at sequence 1 of 2");
  put(index_, good.substr(0, 20));
  expect_refusal("it has 20 bytes; its header alone needs 34");
  put(index_, good);
  std::filesystem::remove(data_);
  EXPECT_NE(environment_error([this] { TokenFile::open(index_); }).find("whose data are missing"),
            std::string::npos);
}

TEST_F(TokenFormats, NegativeIdsAreFoundByPosition) {
  const auto writer = make_token_writer(data_, TokenFormat::megatron, TokenType::i16);
  writer->write({5, 6, -3});
  writer->commit();
  const std::string message = environment_error([this] { TokenFile::open(data_)->check_ids(100); });
  EXPECT_NE(message.find("token 2 has id -3"), std::string::npos) << message;
}

TEST_F(TokenFormats, IdsThatDoNotFitAreNotWritten) {
  const auto usage_error = [](const auto& action) -> std::string {
    try {
      action();
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  const auto writer = make_token_writer(data_, TokenFormat::nanogpt, TokenType::u16);
  writer->write({1, 2});
  EXPECT_NE(usage_error([&] {
              writer->write({3, 65'536});
            }).find("id 65536 of token 3"),
            std::string::npos);
  EXPECT_NE(usage_error([&] { writer->write({-1}); }), "");
  EXPECT_NE(usage_error([this] {
              make_token_writer(data_, TokenFormat::megatron, TokenType::u32);
            }).find("megatron has no tokens of type uint32"),
            std::string::npos);
  EXPECT_NE(usage_error([this] { make_token_writer(data_, TokenFormat::llmc, TokenType::i8); }),
            "");
  EXPECT_EQ(files::token_type_for(TokenFormat::megatron, 65'499), TokenType::u16);
  EXPECT_EQ(files::token_type_for(TokenFormat::megatron, 65'500), TokenType::i32);
  EXPECT_EQ(files::token_type_for(TokenFormat::nanogpt, 65'536), TokenType::u16);
  EXPECT_EQ(files::token_type_for(TokenFormat::llmc, 65'537), TokenType::u32);
}

TEST_F(TokenFormats, WhatIsNotCommittedLeavesNothing) {
  {
    const auto writer = make_token_writer(data_, TokenFormat::megatron, TokenType::u16);
    writer->write({1, 2, 3});
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

}  // namespace
}  // namespace lockstep::input
