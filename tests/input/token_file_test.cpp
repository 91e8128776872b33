#include "lockstep/input/token_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/files/temp_folder.h"
#include "tests/input/token_files.h"

namespace lockstep::input {
namespace {

using namespace std::string_literals;

class TokenFileTest : public ::testing::Test {
 protected:
  /// The message with which `bytes` are refused as token file; empty if they are taken.
  std::string refusal(const std::string& bytes) const {
    put(path_, bytes);
    return environment_error([this] { TokenFile::open(path_); });
  }

  files::TempFolder folder_{"token-test"};
  std::string path_ = folder_.file("my train.bin");
};

TEST_F(TokenFileTest, ReadsAnyRange) {
  std::vector<uint16_t> ids(1001);
  std::iota(ids.begin(), ids.end(), uint16_t{65'000});
  put_tokens(path_, ids);
  const auto file = TokenFile::open(path_);
  ASSERT_EQ(file->size(), 1001);
  EXPECT_EQ(file->path(), path_);
  for (const int64_t first : {0, 1, 500, 1000, 1001}) {
    for (const int64_t count : {0, 1, 2, 501, 1001}) {
      std::vector<int64_t> out(static_cast<size_t>(count), -1);
      if (first + count > 1001) {
        EXPECT_THROW(file->read(first, count, out.data()), UsageError) << first << " " << count;
        continue;
      }
      file->read(first, count, out.data());
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(out[static_cast<size_t>(i)], ids[static_cast<size_t>(first + i)]);
      }
    }
  }
  EXPECT_THROW(file->read(-1, 1, nullptr), UsageError);
  EXPECT_THROW(file->read(1, -1, nullptr), UsageError);
  EXPECT_THROW(file->read(1, INT64_MAX, nullptr), UsageError);
}

TEST_F(TokenFileTest, AMissingFileNamesTheCommandThatHelps) {
  const std::string message = environment_error([this] { TokenFile::open(path_); });
  EXPECT_NE(message.find(path_), std::string::npos) << message;
  EXPECT_TRUE(message.ends_with("lockstep data prepare austen")) << message;
  try {
    TokenFile::open(path_);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 3);
  }
  EXPECT_NE(environment_error([this] { TokenFile::open(folder_.path()); }).find("directory"),
            std::string::npos);
}

TEST_F(TokenFileTest, EmptyAndOddFilesAreRefused) {
  EXPECT_NE(refusal("").find("is empty"), std::string::npos);
  EXPECT_NE(refusal("abc").find("3 bytes, no whole number of tokens"), std::string::npos);
  EXPECT_NE(refusal("a").find("has 1 byte, no"), std::string::npos);
  EXPECT_EQ(refusal("ab"), "");
}

TEST_F(TokenFileTest, OtherFormatsAreNamed) {
  const auto word = [](uint32_t value) {
    return std::string(reinterpret_cast<const char*>(&value), 4);
  };
  const std::string rest(1020, '\0');
  const struct {
    std::string bytes;
    const char* named;
  } cases[] = {
      {word(20240522) + rest, "evaluation file of llm.c"},
      {word(20240328) + rest, "tokenizer file of llm.c"},
      {word(20240326) + rest, "model file of llm.c"},
      {word(20240527) + rest, "state file of llm.c"},
      {"MMIDIDX\0\0"s + rest, "Megatron"},
      {"\x1f\x8b\x08\0"s + rest, "gzip"},
      {"PK\x03\x04"s + rest, "zip"},
      {"\x93NUMPY\x01\0"s + rest, "NumPy"},
      {"\x02\0\0\0\0\0\0\0{}"s, "safetensors"},
      {"\x80\x04\x95\x0b\0\0\0\0\0\0\0}."s, "pickle"},
      {"\x80\x02}q\0."s, "pickle"},
      {"It was a dark and stormy night; the rain fell in torrents, except at occasional...",
       "a text file"},
      {"\u00dcber allen Gipfeln ist Ruh, in allen Wipfeln sp\u00fcrest du kaum einen Hauch...",
       "a text file"},
      {"\u4e2d\u6587 \u5341\u4e8c\u6708\n\u4e2d\u6587 \u5341\u4e8c\u6708\n\u4e2d\u6587 "
       "\u5341\u4e8c\u6708\n\u4e2d\u6587 \u5341\u4e8c\u6708\n\u4e2d\u6587",
       "a text file"},
      {"a text longer than what is looked at, and cut within a character there: " +
           std::string(4096 - 72 - 1, 'x') + "\u00fc",
       "a text file"},
  };
  for (const auto& other : cases) {
    const std::string message = refusal(other.bytes);
    EXPECT_NE(message.find(other.named), std::string::npos) << other.named << ": " << message;
    EXPECT_NE(message.find(path_), std::string::npos) << message;
  }
}

/// Data that only begin like another format are data.
TEST_F(TokenFileTest, TokensAreNotTakenForAnotherFormat) {
  std::string bytes_as_tokens;
  for (const char c : "{\"w\": PK, tokens of a byte each have a zero second byte.  \n {}"s) {
    bytes_as_tokens += c;
    bytes_as_tokens += '\0';
  }
  EXPECT_EQ(refusal(bytes_as_tokens), "");
  EXPECT_EQ(refusal("\x80\x04\x51\x01"s + std::string(100, '\1')), "");  // 1152 is a common token
  EXPECT_EQ(refusal("\x80\x02.."s), "");
  EXPECT_EQ(refusal("\x1f\x8b\x11\x01"s), "");
  EXPECT_EQ(refusal("ab"s + "cd"), "");
}

TEST_F(TokenFileTest, TheFirstIdBeyondTheVocabularyIsNamed) {
  for (const int64_t position : {0, 1, 65'535, 65'536, 199'999}) {
    std::vector<uint16_t> ids(200'000, 9);
    ids[static_cast<size_t>(position)] = 10;
    ids.back() = 700;
    put_tokens(path_, ids);
    const auto file = TokenFile::open(path_);
    const std::string message = environment_error([&] { file->check_ids(10); });
    const int id = position == 199'999 ? 700 : 10;
    EXPECT_NE(message.find(base::str("token ", position, " has id ", id, ",")), std::string::npos)
        << message;
    EXPECT_EQ(environment_error([&] { file->check_ids(701); }), "");
    EXPECT_EQ(environment_error([&] { file->check_ids(70'000); }), "");
    EXPECT_EQ(file->largest_id(), 700);
  }
  put_tokens(path_, {65'535});
  EXPECT_NE(environment_error([this] { TokenFile::open(path_)->check_ids(65'535); }), "");
  EXPECT_EQ(environment_error([this] { TokenFile::open(path_)->check_ids(65'536); }), "");
}

TEST_F(TokenFileTest, FewerTokensThanAWindowNameTheContextThatFits) {
  put_tokens(path_, {1, 2, 3, 4, 5});
  const auto file = TokenFile::open(path_);
  EXPECT_EQ(environment_error([&] { require_window(*file, 4); }), "");
  const std::string message = environment_error([&] { require_window(*file, 5); });
  EXPECT_NE(message.find("has 5 tokens"), std::string::npos) << message;
  EXPECT_NE(message.find("largest context that fits is 4"), std::string::npos) << message;
}

TEST_F(TokenFileTest, AFileCutWhileInUseIsAnErrorAndNoCrash) {
  put_tokens(path_, std::vector<uint16_t>(100'000, 7));
  const auto file = TokenFile::open(path_);
  std::filesystem::resize_file(path_, 10);
  int64_t out[4];
  EXPECT_NE(environment_error([&] { file->read(90'000, 4, out); }).find("cut short"),
            std::string::npos);
  EXPECT_NE(environment_error([&] { file->check_ids(256); }).find("cut short"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::input
