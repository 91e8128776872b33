#include "lockstep/files/austen.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include "lockstep/base/error.h"
#include "lockstep/files/byte_tokenizer.h"
#include "lockstep/files/temp_folder.h"
#include "tests/files/on_disk.h"

namespace lockstep::files {
namespace {

using on_disk::message_of;

std::string word(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

std::string raw_block(const std::vector<std::string>& lines) {
  std::string raw =
      "X\n" + word(3) + word(0x040203) + word(0x030500) + word(5) + "UTF-8" + word(16);
  raw += word(static_cast<uint32_t>(lines.size()));
  for (const auto& line : lines) {
    raw += word(0x40009) + word(static_cast<uint32_t>(line.size())) + line;
  }
  return raw;
}

std::string record(const std::string& raw) {
  uLongf size = compressBound(raw.size());
  std::string packed(size, '\0');
  compress(reinterpret_cast<Bytef*>(packed.data()), &size,
           reinterpret_cast<const Bytef*>(raw.data()), raw.size());
  return word(static_cast<uint32_t>(raw.size())) + packed.substr(0, size);
}

class RStrings : public ::testing::Test {
 protected:
  std::string refusal(const std::string& bytes) {
    on_disk::put(path_, bytes);
    return message_of<EnvironmentError>([this] { decode_r_strings(path_); });
  }

  TempFolder folder_{"austen-test"};
  std::string path_ = folder_.file("Rdata.rdb");
};

TEST_F(RStrings, LinesOfAllRecordsInFileOrder) {
  on_disk::put(path_, record(raw_block({"EMMA", "", "by a lady"})) + record(raw_block({})) +
                          record(raw_block({"\u00fcber"})));
  EXPECT_EQ(decode_r_strings(path_), "EMMA\n\nby a lady\n\u00fcber\n");
}

TEST_F(RStrings, CutAtAnyByteIsRefused) {
  const std::string whole = record(raw_block({"one line", "and another"}));
  for (size_t length = 1; length < whole.size(); ++length) {
    const std::string message = refusal(whole.substr(0, length));
    EXPECT_NE(message.find(path_ + ": record 0"), std::string::npos) << length << message;
  }
}

TEST_F(RStrings, WhatIsNoStringVectorIsRefused) {
  const std::string good = raw_block({"line"});
  const auto changed = [&good](size_t at, char value) {
    std::string raw = good;
    raw[at] = value;
    return record(raw);
  };
  EXPECT_NE(refusal(record(good) + "junk that follows").find("record 1"), std::string::npos);
  EXPECT_NE(refusal(changed(0, 'A')).find("XDR"), std::string::npos);
  EXPECT_NE(refusal(changed(5, 2)).find("version 3"), std::string::npos);
  EXPECT_NE(refusal(changed(18, 'L')).find("UTF-8"), std::string::npos);
  EXPECT_NE(refusal(changed(26, 14)).find("vector of strings"), std::string::npos);
  EXPECT_NE(refusal(changed(30, 2)).find("cut short"), std::string::npos);
  EXPECT_NE(refusal(changed(34, 10)).find("else than strings"), std::string::npos);
  EXPECT_NE(refusal(record(good + "x")).find("bytes follow"), std::string::npos);
  EXPECT_NE(refusal("\xff\xff\xff\xff").find("beyond belief"), std::string::npos);
  std::string too_long = record(good);
  too_long[3] = static_cast<char>(too_long[3] + 1);
  EXPECT_NE(refusal(too_long).find("does not unpack"), std::string::npos);
}

TEST_F(RStrings, AnotherTextIsNotTakenForAusten) {
  on_disk::put(path_, record(raw_block({"EMMA", "by Jane Bond"})));
  const std::string message = message_of<EnvironmentError>([this] { austen_text(path_); });
  EXPECT_NE(message.find(kAustenSha256), std::string::npos) << message;
  ByteTokenizer bytes;
  EXPECT_NE(message_of<EnvironmentError>(
                [&] { prepare_austen(path_, bytes, {.folder = folder_.file("out")}); }),
            "");
  EXPECT_FALSE(std::filesystem::exists(folder_.file("out")));
  EXPECT_NE(
      message_of<EnvironmentError>([this] { austen_text(folder_.file("none")); }).find("none"),
      std::string::npos);
}

}  // namespace
}  // namespace lockstep::files
