// Files of pictures, and the IDX files that they are made of: what is broken is refused, by name.
#include "lockstep/files/picture_file.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <fstream>
#include <iterator>

#include "lockstep/base/error.h"
#include "lockstep/files/idx.h"
#include "lockstep/files/temp_folder.h"

namespace lockstep::files {
namespace {

using namespace std::string_literals;

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

class PictureFileTest : public ::testing::Test {
 protected:
  std::string put(const std::string& bytes) const {
    const std::string path = folder_.file("file");
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  /// Two pictures of 1 by 3 points.
  std::string written() const {
    const std::string path = folder_.file("two.pictures");
    write_pictures(path, {.count = 2, .rows = 1, .columns = 3, .classes = 4}, "\3\0"s,
                   "\1\2\377\4\5\6"s);
    return path;
  }
  /// Why `bytes` are refused.
  std::string refused(const std::string& bytes) const {
    try {
      PictureFile::open(put(bytes));
    } catch (const EnvironmentError& error) {
      return error.what();
    }
    return "";
  }
  std::string refused_idx(const std::string& bytes) const {
    try {
      read_idx(put(bytes));
    } catch (const EnvironmentError& error) {
      return error.what();
    }
    return "";
  }

  TempFolder folder_{"pictures test"};
};

bool says(const std::string& message, const std::string& word) {
  return message.find(word) != std::string::npos;
}

TEST_F(PictureFileTest, ReadsWhatWasWritten) {
  const auto file = PictureFile::open(written());
  EXPECT_EQ(file->shape().count, 2);
  EXPECT_EQ(file->shape().points(), 3);
  EXPECT_EQ(file->shape().classes, 4);
  EXPECT_EQ(file->label(0), 3);
  EXPECT_EQ(file->label(1), 0);
  EXPECT_EQ(file->count_of(3), 1);
  EXPECT_EQ(file->count_of(1), 0);
  uint8_t points[3];
  file->read(0, points);
  EXPECT_EQ(points[2], 255);
  file->read(1, points);
  EXPECT_EQ(points[0], 4);
  EXPECT_TRUE(is_picture_file(written()));
  EXPECT_FALSE(is_picture_file(put("tokens")));
  EXPECT_FALSE(is_picture_file(folder_.file("nothing")));
}

TEST_F(PictureFileTest, BytesAreTheDocumentedOnes) {
  const std::string bytes = read_all(written());
  ASSERT_EQ(bytes.size(), 32u + 2 + 6);
  EXPECT_EQ(bytes.substr(0, 8), "lspics01");
  EXPECT_EQ(bytes.substr(12, 20), "\2\0\0\0\1\0\0\0\3\0\0\0\4\0\0\0\0\0\0\0"s);
  EXPECT_EQ(bytes.substr(32), "\3\0\1\2\377\4\5\6"s);
}

TEST_F(PictureFileTest, RefusesWhatIsBroken) {
  const std::string good = read_all(written());
  EXPECT_TRUE(says(refused(""), "does not begin"));
  EXPECT_TRUE(says(refused("lspics02" + good.substr(8)), "does not begin"));
  EXPECT_TRUE(says(refused(good.substr(0, 20)), "inside its header"));
  EXPECT_TRUE(says(refused(good.substr(0, good.size() - 1)), "8 bytes, and it has 7"));
  EXPECT_TRUE(says(refused(good + "x"), "8 bytes, and it has 9"));
  for (size_t at = 28; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    EXPECT_TRUE(says(refused(bad), "checksum")) << at;
  }
  // Sizes that would ask for the world.
  for (size_t at = 8; at < 28; ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(0xff);
    EXPECT_FALSE(refused(bad).empty()) << at;
  }
  EXPECT_TRUE(says(refused(good.substr(0, 12) + std::string(16, '\0') + good.substr(28)), "none"));
  EXPECT_THROW(PictureFile::open(folder_.file("nothing")), EnvironmentError);
}

TEST_F(PictureFileTest, WritesNothingThatItWouldRefuse) {
  const PictureShape shape{.count = 1, .rows = 1, .columns = 2, .classes = 2};
  const std::string path = folder_.file("new.pictures");
  EXPECT_THROW(write_pictures(path, shape, "\2"s, "ab"), UsageError);    // no class
  EXPECT_THROW(write_pictures(path, shape, "\1"s, "abc"), UsageError);   // a point too many
  EXPECT_THROW(write_pictures(path, shape, "\1\1"s, "ab"), UsageError);  // a label too many
  EXPECT_THROW(write_pictures(path, {}, "", ""), UsageError);
  EXPECT_FALSE(is_picture_file(path));
}

TEST_F(PictureFileTest, ACutFileIsAnErrorAndNoSignal) {
  const std::string path = written();
  const auto file = PictureFile::open(path);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << "";
  uint8_t points[3];
  EXPECT_THROW(file->read(0, points), EnvironmentError);
}

std::string gzipped(const std::string& raw) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string packed(raw.size() + 100, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(raw.data()));
  stream.avail_in = static_cast<uInt>(raw.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

const std::string kIdx = "\0\0\10\2\0\0\0\2\0\0\0\3abcdef"s;  // 2 by 3

TEST_F(PictureFileTest, IdxPlainAndPacked) {
  for (const std::string& bytes : {kIdx, gzipped(kIdx)}) {
    const IdxArray array = read_idx(put(bytes));
    EXPECT_EQ(array.dims, (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(array.bytes, "abcdef");
  }
}

TEST_F(PictureFileTest, IdxThatIsBroken) {
  EXPECT_TRUE(says(refused_idx(""), "does not begin"));
  EXPECT_TRUE(says(refused_idx("\1" + kIdx.substr(1)), "does not begin"));
  EXPECT_TRUE(says(refused_idx("\0\0\15\1\0\0\0\1abcd"s), "no bytes"));  // floats
  EXPECT_TRUE(says(refused_idx("\0\0\10\0"s), "0 dims"));
  EXPECT_TRUE(says(refused_idx("\0\0\10\4"s), "4 dims"));
  EXPECT_TRUE(says(refused_idx(kIdx.substr(0, 11)), "inside its header"));
  EXPECT_TRUE(says(refused_idx(kIdx.substr(0, 17)), "6 bytes, and it has 5"));
  EXPECT_TRUE(says(refused_idx(kIdx + "g"), "6 bytes, and it has 7"));
  // 65536 cubed is 0 in 48 bits and fewer.
  EXPECT_TRUE(says(refused_idx("\0\0\10\3\0\1\0\0\0\1\0\0\0\1\0\0"s), "beyond belief"));
  EXPECT_TRUE(says(refused_idx("\0\0\10\3\377\377\377\377\377\377\377\377\377\377\377\377"s),
                   "beyond belief"));
  const std::string packed = gzipped(kIdx);
  EXPECT_TRUE(says(refused_idx(packed.substr(0, packed.size() - 3)), "does not unpack"));
  EXPECT_TRUE(says(refused_idx(packed + "x"), "bytes follow"));
  std::string flipped = packed;
  flipped[packed.size() - 6] = static_cast<char>(flipped[packed.size() - 6] ^ 1);  // its checksum
  EXPECT_TRUE(says(refused_idx(flipped), "does not unpack"));
  EXPECT_THROW(read_idx(folder_.file("nothing")), EnvironmentError);
}

}  // namespace
}  // namespace lockstep::files
