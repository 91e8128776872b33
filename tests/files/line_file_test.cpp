#include "lockstep/files/line_file.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/files/temp_folder.h"
#include "tests/files/on_disk.h"

namespace lockstep::files {
namespace {

using on_disk::message_of;

TEST(LineFile, EachLineIsThereAtOnce) {
  const TempFolder folder("lines-test");
  on_disk::put(folder.file("a"), "of a run before");
  LineFile file(folder.file("a"));
  file.add("one");
  EXPECT_EQ(on_disk::get(folder.file("a")), "one\n");
  file.add("");
  file.add("two");
  EXPECT_EQ(on_disk::get(folder.file("a")), "one\n\ntwo\n");
  EXPECT_EQ(file.bytes(), 9);
}

TEST(LineFile, GoesOnBehindWhatIsThere) {
  const TempFolder folder("lines-test");
  on_disk::put(folder.file("a"), "one\n");
  LineFile file(folder.file("a"), LineFile::Start::behind_what_is_there);
  EXPECT_EQ(file.bytes(), 4);
  file.add("two");
  EXPECT_EQ(on_disk::get(folder.file("a")), "one\ntwo\n");
}

TEST(LineFile, BAD_8_AFullDiskLeavesWholeLinesAndNamesTheBytes) {
  const TempFolder folder("lines-test");
  LineFile file(folder.file("a"));
  file.add("first");
  {
    const on_disk::FileSizeLimit full(10);
    const std::string message = message_of<StateError>([&] { file.add("the second"); });
    EXPECT_NE(message.find(folder.file("a") + ": 11 bytes cannot be written after 6"),
              std::string::npos)
        << message;
    EXPECT_EQ(on_disk::get(folder.file("a")), "first\n");
  }
  file.add("third");
  EXPECT_EQ(on_disk::get(folder.file("a")), "first\nthird\n");
}

TEST(LineFile, AFolderThatIsNotThereIsNamed) {
  const TempFolder folder("lines-test");
  const std::string message = message_of<StateError>([&] { LineFile(folder.file("no/a")); });
  EXPECT_NE(message.find(folder.file("no/a")), std::string::npos) << message;
}

}  // namespace
}  // namespace lockstep::files
