#include "lockstep/files/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/files/mapped_file.h"
#include "lockstep/files/temp_folder.h"
#include "tests/files/on_disk.h"

namespace lockstep::files {
namespace {

TEST(AtomicFile, AppearsWithCommitOnly) {
  const TempFolder folder("atomic-test");
  const std::string path = folder.file("a file");
  on_disk::put(path, "old");
  {
    AtomicFile file(path);
    file.write("new");
    EXPECT_EQ(on_disk::get(path), "old");
    file.commit();
    EXPECT_EQ(on_disk::get(path), "new");
  }
  {
    AtomicFile dropped(path);
    dropped.write(std::string(1'000'000, 'x'));
  }
  EXPECT_EQ(on_disk::get(path), "new");
  EXPECT_EQ(on_disk::files_in(folder.path()), 1);
}

TEST(AtomicFile, SmallAndLargeWritesKeepTheirOrder) {
  const TempFolder folder("atomic-test");
  AtomicFile file(folder.file("f"));
  std::string expected;
  for (const int size : {1, 200'000, 0, 100'000, 300'000, 3, 262'144, 5}) {
    const std::string piece(static_cast<size_t>(size), static_cast<char>('a' + size % 26));
    file.write(piece);
    expected += piece;
  }
  file.commit();
  EXPECT_EQ(on_disk::get(folder.file("f")), expected);
}

TEST(AtomicFile, TwoWritersOfOneFileDoNotMeet) {
  const TempFolder folder("atomic-test");
  AtomicFile first(folder.file("f"));
  AtomicFile second(folder.file("f"));
  first.write("first");
  second.write("second");
  second.commit();
  first.commit();
  EXPECT_EQ(on_disk::get(folder.file("f")), "first");
}

TEST(AtomicFile, ATargetThatIsAFolderIsAnError) {
  const TempFolder folder("atomic-test");
  std::filesystem::create_directory(folder.file("taken"));
  const std::string message = on_disk::message_of<StateError>([&] {
    AtomicFile file(folder.file("taken"));
    file.write("x");
    file.commit();
  });
  EXPECT_NE(message.find("cannot put in place"), std::string::npos) << message;
  EXPECT_EQ(on_disk::files_in(folder.path()), 1);
}

TEST(MappedFile, EmptyFilesPipesAndCuts) {
  const TempFolder folder("mapped-test");
  on_disk::put(folder.file("empty"), "");
  EXPECT_EQ(MappedFile(folder.file("empty")).size(), 0);
  EXPECT_EQ(MappedFile(folder.file("empty")).text(), "");
  ASSERT_EQ(mkfifo(folder.file("pipe").c_str(), 0600), 0);
  EXPECT_THROW(MappedFile(folder.file("pipe")), std::system_error) << "and does not wait for it";

  on_disk::put(folder.file("f"), std::string(100'000, 'x'));
  const MappedFile file(folder.file("f"));
  file.release(1, 99'998);
  EXPECT_EQ(file.text(), std::string(100'000, 'x'));
  EXPECT_FALSE(file.was_cut());
  std::filesystem::resize_file(folder.file("f"), 99'999);
  EXPECT_TRUE(file.was_cut());
}

TEST(TempFolder, IsGoneWithTheObject) {
  std::string path;
  {
    const TempFolder folder("temp-test");
    const TempFolder other("temp-test");
    EXPECT_NE(folder.path(), other.path());
    path = folder.path();
    std::filesystem::create_directories(folder.file("a/b"));
    on_disk::put(folder.file("a/b/c"), "x");
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace lockstep::files
