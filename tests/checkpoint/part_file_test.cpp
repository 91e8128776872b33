// A rank's file: written from values that are brought one slice at a time.

#include "lockstep/checkpoint/part_file.h"

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/files/safetensors.h"
#include "lockstep/files/sha256.h"
#include "tests/checkpoint/saved.h"
#include "tests/files/on_disk.h"
#include "tests/support/temp_folder.h"

namespace lockstep::checkpoints {
namespace {

using checkpoints::testing::in_grains;
using checkpoints::testing::values_of;
using checkpoints::testing::whole;

struct PartFileTest : ::testing::Test {
  lockstep::testing::TempFolder folder;
};

TEST_F(PartFileTest, SaysWhatIsInIt) {
  const SavedTensor tensor = in_grains(kParam, "w", {5, 3}, 0, {8}, 2);  // 3 rows are padding
  const SavedTensor moment = whole("exp_avg", "w", {5, 3});
  const auto grain = values_of(tensor, 1, 0, 12);
  const auto part_of_moment = values_of(moment, 0, 4, 9);
  const std::vector<SliceToWrite> slices = {
      {.tensor = tensor, .grain = 1, .lo = 0, .hi = 12, .values = [&] { return grain.data(); }},
      {.tensor = moment, .grain = 0, .lo = 4, .hi = 9, .values = [&] {
         return part_of_moment.data();
       }}};
  const PartFile part = write_part(folder.path(), 3, slices);
  EXPECT_EQ(part.name, "part_0003.safetensors");
  const auto file = files::SafetensorsFile::open(folder.file(part.name));
  EXPECT_EQ(file.names(), (std::vector<std::string>{"param/w@1[0:12]", "exp_avg/w[4:9]"}));
  EXPECT_EQ(part.bytes, std::ssize(on_disk::get(folder.file(part.name))));
  EXPECT_EQ(part.header_sha256, files::sha256_hex(file.header_bytes()));
  EXPECT_EQ(part.elements, 17);
  plan::Digest values, params;
  values.add("param/w@1[0:12]", 0, grain.data(), 12);
  values.add("exp_avg/w[4:9]", 0, part_of_moment.data(), 5);
  EXPECT_EQ(part.values, values);
  params.add("w", 12, grain.data(), 3);  // row 4; rows 5 to 7 are padding, moments no parameters
  EXPECT_EQ(part.params, params);
}

TEST_F(PartFileTest, HoldsABlockOnly) {
  // Every slice's values come in the same block: a second look at an earlier one would find others.
  const SavedTensor tensor = whole(kParam, "w", {1000});
  std::vector<float> block;
  std::vector<int64_t> asked;
  std::vector<SliceToWrite> slices;
  for (int64_t lo = 0; lo < 1000; lo += 100) {
    slices.push_back({.tensor = tensor,
                      .grain = 0,
                      .lo = lo,
                      .hi = lo + 100,
                      .values = [&block, &asked, &tensor, lo] {
                        asked.push_back(lo);
                        block = values_of(tensor, 0, lo, lo + 100);
                        return block.data();
                      }});
  }
  write_part(folder.path(), 0, slices);
  EXPECT_EQ(asked, (std::vector<int64_t>{0, 100, 200, 300, 400, 500, 600, 700, 800, 900}));
  const auto file = files::SafetensorsFile::open(folder.file(part_name(0)));
  for (int64_t lo = 0; lo < 1000; lo += 100) {
    std::vector<float> read(100);
    file.read(base::str("param/w[", lo, ":", lo + 100, "]"), read.data(), 400);
    EXPECT_EQ(read, values_of(tensor, 0, lo, lo + 100));
  }
}

TEST_F(PartFileTest, OfARankThatWritesNothing) {
  const PartFile part = write_part(folder.path(), 0, {});
  EXPECT_EQ(part.elements, 0);
  EXPECT_EQ(part.values, plan::Digest{});
  EXPECT_EQ(part.bytes, std::ssize(on_disk::get(folder.file(part.name))));
}

TEST_F(PartFileTest, SaysWhereItCannotWrite) {
  const std::string message =
      on_disk::message_of<StateError>([this] { write_part(folder.file("not there"), 0, {}); });
  EXPECT_NE(message.find("not there/part_0000.safetensors"), std::string::npos) << message;
}

TEST_F(PartFileTest, AReportThatIsNoneIsRefused) {
  Manifest manifest;
  Index index;
  EXPECT_THROW(add_report("", manifest, index), StateError);
  EXPECT_THROW(add_report("{\"part\": 3}", manifest, index), StateError);
}

}  // namespace
}  // namespace lockstep::checkpoints
