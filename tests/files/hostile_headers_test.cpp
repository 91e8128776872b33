// Headers of safetensors files that somebody made to hurt: each is refused, or legal and read, in
// memory and time that follow its length.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/units.h"
#include "lockstep/files/detail/safetensors_header.h"
#include "tests/files/on_disk.h"
#include "tests/support/resident_memory.h"

namespace lockstep::files::detail {
namespace {

using on_disk::message_of;

constexpr size_t kLength = 8 * MiB;

std::string repeated(std::string_view part, size_t length = kLength) {
  std::string text;
  text.reserve(length + part.size());
  while (text.size() < length) text += part;
  return text;
}

/// A tensor's entry; `data_bytes` of it.
std::string entry(const std::string& name, const std::string& shape, int64_t data_bytes) {
  return "\"" + name + "\":{\"dtype\":\"U8\",\"shape\":[" + shape + "],\"data_offsets\":[0," +
         std::to_string(data_bytes) + "]}";
}

std::string numbered(int64_t number, int width) {
  char text[32];
  std::snprintf(text, sizeof text, "%0*lld", width, static_cast<long long>(number));
  return text;
}

/// `part(i)` for 0, 1, ... with commas between, up to about kLength.
template <class Part>
std::string listed(const Part& part) {
  std::string text;
  text.reserve(kLength + 1000);
  for (int64_t i = 0; text.size() < kLength; ++i) text += (i > 0 ? "," : "") + part(i);
  return text;
}

/// Reads `text` within the bounds of the header file's card; what it is refused with, or nothing.
std::string read_within_bounds(const std::string& text, int64_t data_bytes,
                               SafetensorsHeader* header = nullptr) {
  std::string refusal;
  const auto start = std::chrono::steady_clock::now();
  const int64_t peak = testing::peak_bytes_of([&] {
    refusal = message_of<StateError>([&] {
      auto read = parse_safetensors_header(text, data_bytes);
      if (header != nullptr) *header = std::move(read);
    });
  });
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LE(peak, 16 * std::ssize(text) + MiB) << peak / std::ssize(text) << " bytes for each";
#ifndef LOCKSTEP_SANITIZED
  EXPECT_LT(took.count(), 10.0);  // measured: below 0.5 s; a square of the length: hours
#endif
  EXPECT_LT(refusal.size(), 1000U) << refusal.substr(0, 1000);
  EXPECT_TRUE(std::none_of(refusal.begin(), refusal.end(), [](char c) {
    return (c >= 0 && c < ' ') || c == 127;
  })) << refusal;
  return refusal;
}

TEST(HostileHeaders, ManyTensorsAreRead) {
  SafetensorsHeader header;
  const std::string text =
      "{" + listed([](int64_t i) { return entry(numbered(i, 6), "0", 0); }) + "}";
  EXPECT_EQ(read_within_bounds(text, 0, &header), "");
  EXPECT_GT(header.tensors.size(), 100'000U);
  EXPECT_EQ(header.tensors[header.by_name.front()].first, "000000");
}

TEST(HostileHeaders, NamesThatDifferInTheirLastLetter) {
  const std::string start(20'000, 'x');
  SafetensorsHeader header;
  const auto name = [&](int64_t i) { return start + numbered(i, 4); };
  EXPECT_EQ(read_within_bounds(
                "{" + listed([&](int64_t i) { return entry(name(i), "0", 0); }) + "}", 0, &header),
            "");
  EXPECT_GT(header.tensors.size(), 400U);
}

TEST(HostileHeaders, OneNameManyTimes) {
  const std::string text = "{" + listed([](int64_t) { return entry("w", "0", 0); }) + "}";
  EXPECT_EQ(read_within_bounds(text, 0), "\"w\" is listed twice");
}

TEST(HostileHeaders, ManyMetadata) {
  SafetensorsHeader header;
  const auto pair = [](int64_t i) { return "\"" + numbered(i, 6) + "\":\"\""; };
  EXPECT_EQ(read_within_bounds("{\"__metadata__\":{" + listed(pair) + "}}", 0, &header), "");
  EXPECT_GT(header.metadata.size(), 500'000U);
}

TEST(HostileHeaders, AShapeOfMillionsOfDims) {
  SafetensorsHeader header;
  const std::string ones = repeated("1,") + "1";
  EXPECT_EQ(read_within_bounds("{" + entry("w", ones, 1) + "}", 1, &header), "");
  EXPECT_EQ(header.tensors.at(0).second.shape.size(), kLength / 2 + 1);
  EXPECT_EQ(header.tensors.at(0).second.bytes, 1);
  // No product of twos that long is a number of bytes, not even behind a zero.
  EXPECT_NE(
      read_within_bounds("{" + entry("w", "0," + repeated("2,") + "2", 0) + "}", 0).find("shape"),
      std::string::npos);
}

TEST(HostileHeaders, NestingIsRefusedWhereItBegins) {
  for (const char* start : {"{\"w\":", "{\"w\":{\"dtype\":", "{\"w\":{\"shape\":[",
                            "{\"__metadata__\":{\"a\":", "{\"__metadata__\":"}) {
    EXPECT_NE(read_within_bounds(start + repeated("["), 0), "") << start;
    EXPECT_NE(read_within_bounds(start + repeated("{\"a\":"), 0), "") << start;
  }
}

TEST(HostileHeaders, EndlessNumbersNamesAndSpace) {
  EXPECT_NE(read_within_bounds("{" + entry("w", repeated("9"), 0) + "}", 0), "");
  EXPECT_NE(read_within_bounds("{" + entry("w", repeated("9", 300), 0) + "}", 0).find("whole"),
            std::string::npos);
  EXPECT_NE(read_within_bounds("{" + entry("w", "1e" + repeated("9"), 0) + "}", 0), "");
  EXPECT_NE(read_within_bounds("{" + entry("w", "0." + repeated("0") + "1", 0) + "}", 0), "");
  EXPECT_EQ(read_within_bounds("{" + entry(repeated("x"), "0", 0) + "}", 0), "");
  EXPECT_NE(read_within_bounds("{" + entry(repeated("x"), "7", 0) + "}", 7).find("bytes) needs 7"),
            std::string::npos);
  EXPECT_NE(read_within_bounds("{\"" + repeated("x"), 0).find("valid JSON"), std::string::npos);
  EXPECT_NE(read_within_bounds("{\"" + repeated("\\u001b") + "\":7}", 0).find("\\u001b"),
            std::string::npos);
  EXPECT_NE(read_within_bounds("{" + repeated(" "), 0).find("valid JSON"), std::string::npos);
  EXPECT_EQ(read_within_bounds("{}" + repeated(" "), 0), "");
}

TEST(HostileHeaders, NumbersThatAreNone) {
  ASSERT_EQ(read_within_bounds("{" + entry("w", "8", 8) + "}", 8), "");
  for (const char* number : {"-0",
                             "-8",
                             "8.0",
                             "8e0",
                             "0.8e1",
                             "80e-1",
                             "+8",
                             "08",
                             "0x8",
                             "8.",
                             ".8",
                             "8e",
                             "NaN",
                             "Infinity",
                             "true",
                             "null",
                             "\"8\"",
                             "[8]",
                             "{}",
                             "",
                             "8,",
                             ",8",
                             "18446744073709551624",
                             "9223372036854775808",
                             "1e400",
                             "8 8",
                             "8/**/",
                             "4611686018427387904,2"}) {
    EXPECT_NE(read_within_bounds("{" + entry("w", number, 8) + "}", 8), "") << number;
    const std::string end = "{\"w\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,";
    EXPECT_NE(read_within_bounds(end + number + "]}}", 8), "") << number;
  }
}

TEST(HostileHeaders, NamesAreTextAndEqualNamesAreOneHoweverWritten) {
  const auto one = [](const std::string& name) { return "{" + entry(name, "0", 0) + "}"; };
  for (const char* name :
       {"", "\\u0000", "\u00fc", "\\ud83d\\ude00", "\\/", "a.b c\\n", "../../x"}) {
    EXPECT_EQ(read_within_bounds(one(name), 0), "") << name;
  }
  for (const char* name :
       {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\xc3", "\x80",
        "\\ud800", "\\ud800\\u0041", "\\udc00", "\\x41", "\\u12", "\n", "\x1b", "\\"}) {
    EXPECT_NE(read_within_bounds(one(name), 0), "") << name;
    EXPECT_NE(read_within_bounds("{\"__metadata__\":{\"a\":\"" + std::string(name) + "\"}}", 0), "")
        << name;
  }
  const std::string twice = "{" + entry("w", "0", 0) + "," + entry("\\u0077", "0", 0) + "}";
  EXPECT_EQ(read_within_bounds(twice, 0), "\"w\" is listed twice");
  EXPECT_NE(read_within_bounds("{\"__metadata__\":{},\"\\u005f_metadata__\":{}}", 0), "");
  EXPECT_NE(read_within_bounds("{\"w\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0],"
                               "\"\\u0064type\":\"U8\"}}",
                               0),
            "");
  EXPECT_NE(read_within_bounds("\xef\xbb\xbf{}", 0), "") << "a byte order mark";
}

/// Every width of the format, whole bytes only.
TEST(HostileHeaders, EveryDtypeHasItsWidth) {
  const struct {
    int bits;
    std::vector<const char*> names;
  } widths[] = {
      {4, {"F4"}},
      {6, {"F6_E2M3", "F6_E3M2"}},
      {8, {"BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"}},
      {16, {"I16", "U16", "F16", "BF16"}},
      {32, {"I32", "U32", "F32"}},
      {64, {"F64", "I64", "U64", "C64"}}};
  for (const auto& [bits, names] : widths) {
    for (const std::string name : names) {
      const auto refusal = [&](int64_t numel, int64_t bytes) {
        return message_of<StateError>([&] {
          parse_safetensors_header("{\"w\":{\"dtype\":\"" + name + "\",\"shape\":[" +
                                       std::to_string(numel) + "],\"data_offsets\":[0," +
                                       std::to_string(bytes) + "]}}",
                                   bytes);
        });
      };
      EXPECT_EQ(refusal(4, bits / 2), "") << name;
      EXPECT_NE(refusal(4, bits / 2 + 1), "") << name;
      EXPECT_NE(refusal(8, bits / 2), "") << name;
      EXPECT_EQ(refusal(1, bits / 8) == "", bits % 8 == 0) << name;
    }
  }
  for (const char* name : {"", "f32", "F32 ", "F16\\u0000", "E4M3", "float32"}) {
    EXPECT_NE(read_within_bounds(std::string("{\"w\":{\"dtype\":\"") + name +
                                     "\",\"shape\":[0],\"data_offsets\":[0,0]}}",
                                 0),
              "")
        << name;
  }
}

}  // namespace
}  // namespace lockstep::files::detail
