#include "lockstep/files/gguf.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/files/gguf_file.h"
#include "lockstep/files/temp_folder.h"
#include "tests/files/on_disk.h"

namespace lockstep::files {
namespace {

using on_disk::from_hex;
using on_disk::get;
using on_disk::message_of;
using on_disk::put;

const std::vector<float> kRow = {1, 2, 3, 4, 5, 6, 7, 8, 9};
const std::vector<uint16_t> kHalves = {0x3c00, 0x4000};

GgufTensor tensor(const std::string& name, std::vector<int64_t> shape, const void* data,
                  const std::string& dtype = "F32") {
  return {
      .name = name, .dtype = dtype, .shape = std::move(shape), .bring = [data] { return data; }};
}

/// Bytes as the format's page has them, spelt out by hand.
std::string number32(uint32_t value) { return {reinterpret_cast<const char*>(&value), 4}; }
std::string number64(uint64_t value) { return {reinterpret_cast<const char*>(&value), 8}; }
std::string text(const std::string& text) { return number64(text.size()) + text; }

std::string start(uint64_t tensors, uint64_t keys) {
  return "GGUF" + number32(3) + number64(tensors) + number64(keys);
}

std::string tensor_info(const std::string& name, const std::vector<uint64_t>& sizes, uint32_t type,
                        uint64_t offset) {
  std::string bytes = text(name) + number32(static_cast<uint32_t>(sizes.size()));
  for (const uint64_t size : sizes) bytes += number64(size);
  return bytes + number32(type) + number64(offset);
}

std::string padded(std::string bytes) {
  bytes.resize((bytes.size() + 31) / 32 * 32, '\0');
  return bytes;
}

class Gguf : public ::testing::Test {
 protected:
  std::string refusal(const std::string& bytes) const {
    put(path_, bytes);
    return message_of<StateError>([this] { GgufFile::open(path_); });
  }

  TempFolder folder_{"gguf-test"};
  std::string path_ = folder_.file("a model.gguf");
};

TEST_F(Gguf, WritesTheFormatsBytes) {
  write_gguf(path_,
             {{"general.architecture", "llama"},
              {"n", uint32_t{7}},
              {"list", std::vector<std::string>{"a", ""}}},
             {tensor("w", {3, 3}, kRow.data()), tensor("h", {2}, kHalves.data(), "F16")});
  const std::string expected =
      padded(start(2, 3) + text("general.architecture") + number32(8) + text("llama") + text("n") +
             number32(4) + number32(7) + text("list") + number32(9) + number32(8) + number64(2) +
             text("a") + text("") + tensor_info("w", {3, 3}, 0, 0) + tensor_info("h", {2}, 1, 64)) +
      padded(std::string(reinterpret_cast<const char*>(kRow.data()), 36)) +
      padded(std::string(reinterpret_cast<const char*>(kHalves.data()), 4));
  EXPECT_EQ(get(path_), expected);
}

TEST_F(Gguf, RoundTripOfEveryType) {
  const GgufKeys keys = {{"u", uint32_t{4'000'000'000}},
                         {"i", int32_t{-5}},
                         {"f", 0.1f},
                         {"yes", true},
                         {"no", false},
                         {"text", "\u00fc\n"},
                         {"texts", std::vector<std::string>{"a", "", "b c"}},
                         {"floats", std::vector<float>{1, -2}},
                         {"none", std::vector<int32_t>{}},
                         {"ints", std::vector<int32_t>{-1, 7}}};
  write_gguf(path_, keys,
             {tensor("row", {9}, kRow.data()), tensor("block", {2, 1, 4}, kRow.data()),
              tensor("h", {1, 2}, kHalves.data(), "F16")});
  const auto file = GgufFile::open(path_);
  EXPECT_EQ(file.keys(), keys);
  EXPECT_EQ(std::get<int32_t>(*file.find("i")), -5);
  EXPECT_EQ(file.find("other"), nullptr);
  ASSERT_EQ(file.tensors().size(), 3U);
  EXPECT_EQ(file.tensors()[1].shape, (std::vector<int64_t>{2, 1, 4}));
  for (const auto& info : file.tensors()) EXPECT_EQ(info.offset % 32, 0) << info.name;
  std::vector<float> row(9);
  file.read("row", row.data(), 36);
  EXPECT_EQ(row, kRow);
  std::vector<uint16_t> halves(2);
  file.read("h", halves.data(), 4);
  EXPECT_EQ(halves, kHalves);
  EXPECT_NE(message_of<StateError>([&] { file.read("row", row.data(), 35); }).find("has 36 bytes"),
            std::string::npos);
  EXPECT_NE(message_of<StateError>([&] { file.read("rows", row.data(), 36); }).find("\"rows\""),
            std::string::npos);
  std::filesystem::resize_file(path_, 64);
  EXPECT_NE(message_of<StateError>([&] { file.read("row", row.data(), 36); }).find("cut short"),
            std::string::npos);
}

TEST_F(Gguf, CutAtAnyByteIsRefused) {
  write_gguf(path_, {{"general.architecture", "llama"}, {"ints", std::vector<int32_t>{-1, 7}}},
             {tensor("a", {9}, kRow.data()), tensor("b", {8}, kRow.data())});
  const std::string whole = get(path_);
  for (size_t length = 0; length < whole.size(); ++length) {
    const std::string message = refusal(whole.substr(0, length));
    EXPECT_NE(message.find(path_), std::string::npos) << length << ": " << message;
  }
  EXPECT_EQ(refusal(whole), "");
  EXPECT_NE(refusal(whole + "x").find("belong to no tensor"), std::string::npos);
}

TEST_F(Gguf, RefusesWhatItCannotBelieve) {
  const std::string data = std::string(32, '\1');
  const auto one = [&](const std::vector<uint64_t>& sizes, uint32_t type, uint64_t offset) {
    return padded(start(1, 0) + tensor_info("w", sizes, type, offset)) + data;
  };
  ASSERT_EQ(refusal(one({8}, 0, 0)), "");
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  const std::string key = text("k");
  const struct {
    std::string bytes;
    std::string reason;
  } cases[] = {
      {"GGUF", "cut short"},
      {"GGML" + std::string(100, '\0'), "does not begin with GGUF"},
      {"GGUF" + number32(2) + std::string(100, '\0'), "version 2"},
      {"GGUF" + number32(0x03000000) + std::string(100, '\0'), "version 50331648"},
      {start(kMost, 0) + data, "states 18446744073709551615 tensors"},
      {start(0, kMost) + data, "states 18446744073709551615 keys"},
      {start(0, 1) + number64(kMost) + data, "18446744073709551615 bytes"},
      {start(0, 1) + key + number32(8) + number64(kMost) + data, "a length in it is wrong"},
      {start(0, 1) + key + number32(9) + number32(8) + number64(kMost / 8) + data, "values of a"},
      {start(0, 1) + key + number32(9) + number32(9) + number64(1) + data, "type 9"},
      {start(0, 1) + key + number32(12) + data, "type 12"},
      {start(0, 1) + key + number32(7) + "\2" + data, "neither true nor false"},
      {start(0, 1) + text("") + number32(7) + "\1" + data, "without a name"},
      {start(0, 1) + text("\xff") + number32(7) + "\1" + data, "no UTF-8"},
      {start(0, 2) + key + number32(7) + "\1" + key + number32(7) + "\1" + data, "listed twice"},
      {start(0, 1) + text("general.alignment") + number32(4) + number32(0) + data, "alignment"},
      {start(0, 1) + text("general.alignment") + number32(4) + number32(12) + data, "alignment"},
      {start(0, 1) + text("general.alignment") + number32(5) + number32(32) + data, "alignment"},
      {one({}, 0, 0), "0 dims"},
      {one({1, 1, 1, 1, 8}, 0, 0), "5 dims"},
      {one({0}, 0, 0), "impossible shape"},
      {one({kMost}, 0, 0), "impossible shape"},
      {one({uint64_t{1} << 62}, 0, 0), "impossible shape"},
      {one({uint64_t{1} << 32, uint64_t{1} << 32}, 0, 0), "impossible shape"},
      {one({9}, 0, 0), "cut short"},
      {one({uint64_t{1} << 60}, 0, 0), "cut short"},
      {one({8}, 2, 0), "type 2; Lockstep reads"},
      {one({8}, 0, 32), "where 0 is next"},
      {one({8}, 0, kMost), "where 0 is next"},
      {padded(start(2, 0) + tensor_info("w", {8}, 0, 0) + tensor_info("w", {8}, 0, 32)) + data +
           data,
       "listed twice"},
      {padded(start(2, 0) + tensor_info("w", {8}, 0, 0) + tensor_info("v", {8}, 0, 0)) + data,
       "where 32 is next"},
  };
  for (const auto& bad : cases) {
    const std::string message = refusal(bad.bytes);
    EXPECT_NE(message.find(bad.reason), std::string::npos) << message;
    EXPECT_NE(message.find(path_), std::string::npos) << message;
  }
}

TEST_F(Gguf, TheWriterRefusesWhatNobodyCouldRead) {
  const auto refused = [&](const GgufKeys& keys, const std::vector<GgufTensor>& tensors) {
    return message_of<UsageError>([&] { write_gguf(path_, keys, tensors); });
  };
  EXPECT_NE(refused({{"k", true}, {"k", true}}, {}), "");
  EXPECT_NE(refused({{"", true}}, {}), "");
  EXPECT_NE(refused({}, {tensor("w", {1}, nullptr), tensor("w", {1}, nullptr)}), "");
  EXPECT_NE(refused({}, {tensor(std::string(65, 'w'), {1}, nullptr)}).find("64 bytes"),
            std::string::npos);
  EXPECT_NE(refused({}, {tensor("w", {}, nullptr)}).find("0 dims"), std::string::npos);
  EXPECT_NE(refused({}, {tensor("w", {1, 1, 1, 1, 1}, nullptr)}).find("5 dims"), std::string::npos);
  EXPECT_NE(refused({}, {tensor("w", {0}, nullptr)}).find("shape"), std::string::npos);
  EXPECT_NE(refused({}, {tensor("w", {1}, nullptr, "BF16")}).find("\"BF16\""), std::string::npos);
  EXPECT_EQ(on_disk::files_in(folder_.path()), 0);
}

TEST_F(Gguf, AFullDiskLeavesTheOldFile) {
  put(path_, "old");
  const std::vector<float> large(200'000);
  std::string message;
  {
    const on_disk::FileSizeLimit full(300'000);
    message = message_of<StateError>(
        [&] { write_gguf(path_, {}, {tensor("w", {200'000}, large.data())}); });
  }
  EXPECT_NE(message.find("File too large"), std::string::npos) << message;
  EXPECT_EQ(get(path_), "old");
  EXPECT_EQ(on_disk::files_in(folder_.path()), 1);
}

}  // namespace
}  // namespace lockstep::files
