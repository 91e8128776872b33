#include "lockstep/files/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <limits>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/files/temp_folder.h"
#include "tests/files/on_disk.h"

namespace lockstep::files {
namespace {

using on_disk::from_hex;
using on_disk::get;
using on_disk::message_of;
using on_disk::put;
using ::testing::Test;

constexpr const char* kOneTensor =
    "38000000000000007b2277223a7b226474797065223a22463332222c227368617065223a5b325d2c22646174615f6f"
    "66"
    "6673657473223a5b302c385d7d7d20200000803f00000040";

TensorEntry f32(const std::string& name, std::vector<int64_t> shape,
                const std::vector<float>& values) {
  return {.name = name,
          .dtype = "F32",
          .shape = std::move(shape),
          .data = values.data(),
          .bytes = static_cast<int64_t>(values.size() * sizeof(float))};
}

/// A file of `header` and `data`.
std::string file_of(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

class Safetensors : public Test {
 protected:
  std::string refusal(const std::string& bytes) const {
    put(path_, bytes);
    return message_of<StateError>([this] { SafetensorsFile::open(path_); });
  }

  std::vector<float> floats(const SafetensorsFile& file, const std::string& name) const {
    std::vector<float> values(static_cast<size_t>(file.info(name).bytes) / sizeof(float));
    file.read(name, values.data(), file.info(name).bytes);
    return values;
  }

  TempFolder folder_{"safetensors-test"};
  std::string path_ = folder_.file("model of mine.safetensors");
};

TEST_F(Safetensors, ReadsTheKnownFile) {
  put(path_, from_hex(kOneTensor));
  const auto file = SafetensorsFile::open(path_);
  EXPECT_EQ(file.names(), std::vector<std::string>{"w"});
  EXPECT_EQ(file.info("w").dtype, "F32");
  EXPECT_EQ(file.info("w").shape, std::vector<int64_t>{2});
  EXPECT_EQ(floats(file, "w"), (std::vector<float>{1, 2}));
  EXPECT_TRUE(file.metadata().empty());
}

TEST_F(Safetensors, WritesTheKnownFile) {
  write_safetensors(path_, {f32("w", {2}, {1, 2})}, {});
  EXPECT_EQ(get(path_), from_hex(kOneTensor));
}

TEST_F(Safetensors, RoundTripOfOddTensors) {
  const std::vector<float> values = {0.1f, -0.0f, 3e38f};
  const std::vector<uint8_t> bytes = {1, 2, 3};
  const std::vector<int64_t> wide = {-1, 7};
  const std::map<std::string, std::string> metadata = {{"format", "pt"},
                                                       {"a \"b\"\n", "\u00fcber"}};
  write_safetensors(path_,
                    {{"odd", "U8", {3, 1}, bytes.data(), 3},
                     f32("h.0.\u03b2 \"q\"", {1, 3}, values),
                     f32("empty", {4, 0, 2}, {}),
                     {"scalar", "U8", {}, bytes.data(), 1},
                     {"wide", "I64", {2}, wide.data(), 16}},
                    metadata);
  const auto file = SafetensorsFile::open(path_);
  EXPECT_EQ(file.metadata(), metadata);
  // Wider types first, the caller's order within a width; an empty tensor takes no room.
  EXPECT_EQ(file.names(),
            (std::vector<std::string>{"wide", "h.0.\u03b2 \"q\"", "empty", "odd", "scalar"}));
  EXPECT_EQ(file.info("wide").offset % 8, 0);
  EXPECT_EQ(file.info("empty").shape, (std::vector<int64_t>{4, 0, 2}));
  EXPECT_EQ(file.info("scalar").shape, std::vector<int64_t>{});
  const auto back = floats(file, "h.0.\u03b2 \"q\"");
  EXPECT_EQ(std::memcmp(back.data(), values.data(), 12), 0);
  std::vector<uint8_t> odd(3);
  file.read("odd", odd.data(), 3);
  EXPECT_EQ(odd, bytes);
  file.read("empty", nullptr, 0);
}

TEST_F(Safetensors, AFileWithoutTensorsIsLegal) {
  write_safetensors(path_, {}, {{"step", "7"}});
  const auto file = SafetensorsFile::open(path_);
  EXPECT_TRUE(file.names().empty());
  EXPECT_EQ(file.metadata().at("step"), "7");
}

TEST_F(Safetensors, LargerThanOneCopyAndItsBuffers) {
  std::vector<float> large(5'000'003);
  std::iota(large.begin(), large.end(), 0.0f);
  write_safetensors(path_, {f32("a", {1}, {5}), f32("large", {5'000'003}, large)}, {});
  const auto file = SafetensorsFile::open(path_);
  EXPECT_EQ(floats(file, "large"), large);
  EXPECT_EQ(floats(file, "large"), large) << "pages let go of come back from the file";
  EXPECT_EQ(floats(file, "a"), std::vector<float>{5});
}

TEST_F(Safetensors, CutAtAnyByteIsRefused) {
  write_safetensors(path_, {f32("w", {2}, {1, 2}), f32("v", {1}, {3})}, {{"format", "pt"}});
  const std::string whole = get(path_);
  for (size_t length = 0; length < whole.size(); ++length) {
    const std::string message = refusal(whole.substr(0, length));
    EXPECT_NE(message.find(path_), std::string::npos) << length << ": " << message;
  }
  EXPECT_EQ(refusal(whole), "");
  EXPECT_NE(refusal(whole + "x"), "");
}

/// A changed byte is either refused or changes names, metadata or values; it never leads a read out
/// of the file.
TEST_F(Safetensors, AnyChangedByteIsRefusedOrHarmless) {
  write_safetensors(path_, {f32("w", {2}, {1, 2}), f32("v", {1, 1}, {3})}, {{"format", "pt"}});
  const std::string whole = get(path_);
  std::fstream file_itself(path_, std::ios::binary | std::ios::in | std::ios::out);
  const auto change = [&file_itself](size_t at, char byte) {  // in place: quick on any file system
    file_itself.seekp(static_cast<std::streamoff>(at)).put(byte).flush();
  };
  int refused = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const char replacement : {'\0', '0', '9', '"', ',', '}', ' ', '\xff'}) {
      change(at, replacement);
      try {
        const auto file = SafetensorsFile::open(path_);
        for (const auto& name : file.names()) {
          std::vector<char> values(static_cast<size_t>(file.info(name).bytes));
          file.read(name, values.data(), file.info(name).bytes);
        }
      } catch (const StateError&) {
        ++refused;
      }
    }
    change(at, whole[at]);
  }
  EXPECT_GT(refused, static_cast<int>(whole.size()) * 3);
}

TEST_F(Safetensors, RefusesWhatTheFormatForbids) {
  const std::string data(8, '\1');
  const auto tensor = [](const std::string& dtype, const std::string& shape,
                         const std::string& offsets) {
    return "{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
  };
  const std::string good = tensor("F32", "[2]", "[0,8]");
  ASSERT_EQ(refusal(file_of("{\"w\":" + good + "}", data)), "");
  ASSERT_EQ(refusal(file_of("{\"w\":" + good + "}  \n ", data)), "");

  const struct {
    std::string header;
    std::string data;
    std::string reason;
  } cases[] = {
      {" {\"w\":" + good + "}", data, "begin with {"},
      {"[1]", "", "begin with {"},
      {"{\"w\":" + good + "}x", data, "valid JSON"},
      {"{\"w\":" + good, data, "valid JSON"},
      {std::string("{}\0junk", 7), "", "zero byte"},
      {"{\"\xff\":" + good + "}", data, "valid JSON"},
      {"{\"w\":" + good + ",\"w\":" + good + "}", data, "listed twice"},
      {"{\"w\":" + tensor("F32", "[2]", "[8,0]") + "}", data, "after its end"},
      {"{\"w\":" + tensor("F32", "[3]", "[0,8]") + "}", data, "needs 12 bytes"},
      {"{\"w\":" + tensor("F64", "[2]", "[0,8]") + "}", data, "needs 16 bytes"},
      {"{\"w\":" + tensor("F31", "[2]", "[0,8]") + "}", data, "unknown dtype"},
      {"{\"w\":" + tensor("F4", "[1]", "[0,0]") + "}", "", "impossible shape"},
      {"{\"w\":" + tensor("F32", "[4294967296,4294967296]", "[0,0]") + "}", "", "impossible shape"},
      {"{\"w\":" + tensor("F32", "[0,4611686018427387904,4]", "[0,0]") + "}", "",
       "impossible shape"},
      {"{\"w\":" + tensor("F32", "[9223372036854775808]", "[0,8]") + "}", data, "too large"},
      {"{\"w\":" + tensor("F32", "[99999999999999999999]", "[0,8]") + "}", data, "no whole number"},
      {"{\"w\":" + tensor("F32", "[-2]", "[0,8]") + "}", data, "negative"},
      {"{\"w\":" + tensor("F32", "[2.0]", "[0,8]") + "}", data, "no whole number"},
      {"{\"w\":" + tensor("F32", "[[2]]", "[0,8]") + "}", data, "an array"},
      {"{\"w\":" + tensor("F32", "2", "[0,8]") + "}", data, "a number"},
      {"{\"w\":" + tensor("F32", "[2]", "[0,8,8]") + "}", data, "3 data_offsets"},
      {"{\"w\":" + tensor("F32", "[2]", "[8]") + "}", data, "1 data_offsets"},
      {"{\"w\":" + tensor("F32", "[2]", "[0,16]") + "}", data, "but has 16"},
      {"{\"w\":" + tensor("F32", "[4]", "[0,16]") + "}", data, "cut short"},
      {"{\"w\":" + tensor("F32", "[1]", "[4,8]") + "}", data, "belong to no tensor"},
      {"{\"w\":" + tensor("F32", "[1]", "[0,4]") + "}", data, "but there are 8"},
      {"{\"w\":" + good + ",\"v\":" + tensor("F32", "[1]", "[4,8]") + "}", data, "another tensor"},
      {"{\"w\":" + good + ",\"v\":" + good + "}", data, "another tensor"},
      {"{\"w\":{\"dtype\":\"F32\",\"shape\":[2]}}", data, "has no data_offsets"},
      {"{\"w\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", data,
       "\"dtype\" twice"},
      {"{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"more\":1}}", data,
       "unknown field"},
      {"{\"w\":3}", data, "a number where none belongs"},
      {"{\"__metadata__\":{\"a\":1},\"w\":" + good + "}", data, "maps strings to strings"},
      {"{\"__metadata__\":{\"a\":{}},\"w\":" + good + "}", data, "maps strings to strings"},
      {"{\"__metadata__\":\"a\",\"w\":" + good + "}", data, "maps strings to strings"},
      {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"},\"w\":" + good + "}", data, "\"a\" twice"},
      {"{\"__metadata__\":{},\"__metadata__\":{},\"w\":" + good + "}", data, "listed twice"},
  };
  for (const auto& bad : cases) {
    const std::string message = refusal(file_of(bad.header, bad.data));
    EXPECT_NE(message.find(bad.reason), std::string::npos) << bad.header << "\n  " << message;
    EXPECT_NE(message.find(path_), std::string::npos) << message;
  }
}

TEST_F(Safetensors, RefusesHeaderLengthsBeforeBelievingThem) {
  EXPECT_NE(refusal(from_hex("ffffffffffffffff") + "{}").find("more than the"), std::string::npos);
  EXPECT_NE(refusal(from_hex("01e1f50500000000") + "{}").find("more than the"), std::string::npos);
  EXPECT_NE(refusal(from_hex("00e1f50500000000") + "{}").find("cut short"), std::string::npos);
  EXPECT_NE(refusal(from_hex("0300000000000000") + "{}").find("cut short"), std::string::npos);
  EXPECT_NE(refusal(from_hex("0000000000000000")).find("begin with {"), std::string::npos);
}

/// A header of ten megabytes of opening brackets neither recurses nor takes long.
TEST_F(Safetensors, DeepNestingIsRefusedAtOnce) {
  EXPECT_NE(refusal(file_of("{\"w\":" + std::string(10'000'000, '['), "")), "");
}

TEST_F(Safetensors, MissingFileAndFolderAreNamed) {
  const auto missing = [&](const std::string& path) {
    return message_of<StateError>([&] { SafetensorsFile::open(path); });
  };
  EXPECT_NE(missing(path_).find("No such file"), std::string::npos);
  EXPECT_NE(missing(folder_.path()).find("Is a directory"), std::string::npos);
  EXPECT_NE(missing("/dev/null").find("/dev/null"), std::string::npos);
}

TEST_F(Safetensors, AskingForAnotherTensorOrSizeIsAnError) {
  write_safetensors(path_, {f32("embed.weight", {2}, {1, 2})}, {});
  const auto file = SafetensorsFile::open(path_);
  EXPECT_NE(
      message_of<StateError>([&] { (void)file.info("embed.wieght"); }).find("\"embed.weight\""),
      std::string::npos);
  float values[4];
  EXPECT_NE(message_of<StateError>([&] { file.read("embed.weight", values, 16); }).find("has 8"),
            std::string::npos);
}

TEST_F(Safetensors, PartsOfATensorAndTheBytesOfTheHeader) {
  std::vector<float> large(5'000'003);
  std::iota(large.begin(), large.end(), 0.0f);
  write_safetensors(path_, {f32("a", {2}, {5, 6}), f32("w", {5'000'003}, large), f32("e", {0}, {})},
                    {});
  const auto file = SafetensorsFile::open(path_);
  std::vector<float> part(4'500'000);
  file.read_part("w", 4 * 500'003, 4 * 4'500'000, part.data());
  EXPECT_TRUE(std::equal(part.begin(), part.end(), large.begin() + 500'003));
  file.read_part("w", 20'000'008, 4, part.data());
  EXPECT_EQ(part[0], 5'000'002.0f);
  file.read_part("w", 20'000'012, 0, nullptr);
  file.read_part("e", 0, 0, nullptr);

  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const auto& [first, bytes] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 9}, {8, 1}, {9, 0}, {-1, 1}, {1, -1}, {kMost, kMost}, {4, kMost}, {-kMost, kMost}}) {
    const std::string message = message_of<StateError>(
        [&, first = first, bytes = bytes] { file.read_part("a", first, bytes, part.data()); });
    EXPECT_NE(message.find(path_ + ": tensor \"a\" has 8 bytes, but "), std::string::npos)
        << first << ", " << bytes << ": " << message;
  }

  EXPECT_EQ(file.path(), path_);
  const std::string whole = get(path_);
  EXPECT_EQ(file.header_bytes(), whole.substr(0, whole.size() - 20'000'020));
  std::filesystem::resize_file(path_, 4);
  EXPECT_NE(message_of<StateError>([&] { (void)file.header_bytes(); }).find("cut short"),
            std::string::npos);
}

/// Written to the path that it is read from: the source is whole until the swap, and after it for
/// those who have it open.
TEST_F(Safetensors, WritesOverTheFileItReadsFrom) {
  write_safetensors(path_, {f32("w", {2}, {1, 2})}, {});
  const auto old = SafetensorsFile::open(path_);
  const auto values = floats(old, "w");
  write_safetensors(path_, {f32("w", {2}, values)}, {});
  EXPECT_EQ(get(path_), from_hex(kOneTensor));
  write_safetensors(path_, {f32("w", {2}, {1, 5})}, {});
  EXPECT_EQ(floats(old, "w"), (std::vector<float>{1, 2}));
  EXPECT_EQ(floats(SafetensorsFile::open(path_), "w"), (std::vector<float>{1, 5}));
  EXPECT_EQ(on_disk::files_in(folder_.path()), 1);
}

TEST_F(Safetensors, AFullDiskLeavesTheOldFile) {
  write_safetensors(path_, {f32("w", {2}, {1, 2})}, {});
  const std::vector<float> large(200'000);
  std::string message;
  {
    const on_disk::FileSizeLimit full(300'000);
    message =
        message_of<StateError>([&] { write_safetensors(path_, {f32("w", {200'000}, large)}, {}); });
  }
  EXPECT_NE(message.find(path_), std::string::npos) << message;
  EXPECT_NE(message.find("after 300,000 bytes"), std::string::npos) << message;
  EXPECT_NE(message.find("File too large"), std::string::npos) << message;
  EXPECT_EQ(get(path_), from_hex(kOneTensor));
  EXPECT_EQ(on_disk::files_in(folder_.path()), 1);

  message = message_of<StateError>([&] { write_safetensors(folder_.file("no/w"), {}, {}); });
  EXPECT_NE(message.find("No such file"), std::string::npos) << message;
}

TEST_F(Safetensors, AFileCutWhileReadIsAnErrorAndNoCrash) {
  const std::vector<float> values(100'000, 1.0f);
  write_safetensors(path_, {f32("w", {100'000}, values)}, {});
  const auto file = SafetensorsFile::open(path_);
  std::filesystem::resize_file(path_, 1000);
  EXPECT_NE(message_of<StateError>([&] { floats(file, "w"); }).find("cut short"),
            std::string::npos);
}

TEST_F(Safetensors, TheWriterRefusesWhatNobodyCouldRead) {
  const auto refused = [&](std::vector<TensorEntry> tensors,
                           std::map<std::string, std::string> metadata = {}) {
    return message_of<UsageError>([&] { write_safetensors(path_, tensors, metadata); });
  };
  const std::vector<float> one = {1};
  EXPECT_NE(refused({f32("w", {2}, one)}).find("need 8"), std::string::npos);
  EXPECT_NE(refused({f32("w", {-1}, one)}), "");
  EXPECT_NE(refused({f32("w", {1}, one), f32("w", {1}, one)}).find("\"w\""), std::string::npos);
  EXPECT_NE(refused({f32("__metadata__", {1}, one)}), "");
  EXPECT_NE(refused({{"w", "float", {1}, one.data(), 4}}).find("\"float\""), std::string::npos);
  EXPECT_NE(refused({f32("\xff", {1}, one)}).find("UTF-8"), std::string::npos);
  EXPECT_NE(refused({}, {{"a", "\xc3"}}).find("UTF-8"), std::string::npos);
  EXPECT_EQ(on_disk::files_in(folder_.path()), 0);
}

/// A pickle can carry code, and a zip may hold one: neither is opened, whatever is inside.
TEST_F(Safetensors, CKPT_8_PicklesAndZipsAreNamedAndNotOpened) {
  const TempFolder folder("safetensors-test");
  const std::string path = folder.file("model.safetensors");
  const std::string canary = folder.file("canary");
  const std::string pickle =
      "\x80\x02"
      "cposix\nsystem\nX" +
      std::string("\x10\0\0\0", 4) + "touch " + canary + "q\x01\x85R.";
  for (const auto& [bytes, named] : std::vector<std::pair<std::string, std::string>>{
           {pickle, "it is a Python pickle; nothing in it was run"},
           {"\x80\x02\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19." + pickle + "storage",
            "checkpoint of pickles"},
           {std::string("PK\x03\x04", 4) + pickle, "it is a zip file"},
           {std::string("PK\x05\x06", 4) + std::string(18, '\0'), "it is a zip file"}}) {
    on_disk::put(path, bytes);
    const std::string message =
        on_disk::message_of<StateError>([&] { SafetensorsFile::open(path); });
    EXPECT_NE(message.find(named), std::string::npos) << message;
  }
  EXPECT_FALSE(std::filesystem::exists(canary));
}

}  // namespace
}  // namespace lockstep::files
