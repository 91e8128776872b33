#include "lockstep/files/debian_package.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/files/austen.h"
#include "lockstep/files/byte_tokenizer.h"
#include "lockstep/files/detail/run_program.h"
#include "lockstep/files/temp_folder.h"
#include "tests/files/on_disk.h"

namespace lockstep::files {
namespace {

using on_disk::message_of;

/// Programs of the test's own, found before the system's.
class DebianPackage : public ::testing::Test {
 protected:
  void SetUp() override {
    path_before_ = getenv("PATH");
    tmpdir_before_ = getenv("TMPDIR") != nullptr ? getenv("TMPDIR") : "";
    std::filesystem::create_directory(programs_);
    setenv("PATH", (programs_ + ":" + path_before_).c_str(), 1);
  }
  void TearDown() override {
    setenv("PATH", path_before_.c_str(), 1);
    tmpdir_before_.empty() ? unsetenv("TMPDIR") : setenv("TMPDIR", tmpdir_before_.c_str(), 1);
  }

  void program(const std::string& name, const std::string& script) const {
    on_disk::put(programs_ + "/" + name, "#!/bin/sh\n" + script);
    chmod((programs_ + "/" + name).c_str(), 0755);
  }

  TempFolder folder_{"package test"};
  std::string programs_ = folder_.file("bin");
  std::string path_before_;
  std::string tmpdir_before_;
};

TEST_F(DebianPackage, UpdatesListsOnceWhenThePackageIsUnknown) {
  program("apt-get",
          "for word; do last=$word; done\n"
          "echo \"$*\" >> calls\n"
          "if [ \"$last\" = update ]; then touch lists; exit 0; fi\n"
          "[ -e lists ] || { echo 'E: Unable to locate package'; exit 100; }\n"
          "touch \"${last}_1.0_all.deb\"\n");
  const TempFolder work("fetch");
  EXPECT_EQ(fetch_debian_package("some-text", work.path()), work.file("some-text_1.0_all.deb"));
  const std::string calls = on_disk::get(work.file("calls"));
  EXPECT_EQ(std::count(calls.begin(), calls.end(), '\n'), 3) << calls;
  fetch_debian_package("some-text", work.path());
  const std::string more = on_disk::get(work.file("calls"));
  EXPECT_EQ(std::count(more.begin(), more.end(), '\n'), 4) << "known now: no update";
}

TEST_F(DebianPackage, WhatAptSaidIsQuoted) {
  program("apt-get",
          "echo first; echo; for i in 1 2 3 4 5; do echo \"E: reason $i\"; done; exit 100\n");
  const TempFolder work("fetch");
  const std::string message =
      message_of<EnvironmentError>([&] { fetch_debian_package("some-text", work.path()); });
  EXPECT_NE(message.find("exit code 100"), std::string::npos) << message;
  EXPECT_NE(message.find("\n  | E: reason 1\n  | E: reason 2"), std::string::npos) << message;
  EXPECT_TRUE(message.ends_with("E: reason 5")) << message;
}

TEST_F(DebianPackage, PreparingWithoutAptSaysWhatToDoAndLeavesNothing) {
  const std::string temporary = folder_.file("tmp");
  std::filesystem::create_directory(temporary);
  setenv("TMPDIR", temporary.c_str(), 1);
  setenv("PATH", programs_.c_str(), 1);
  ByteTokenizer bytes;
  const std::string message = message_of<EnvironmentError>(
      [&] { prepare_austen("", bytes, {.folder = folder_.file("out")}); });
  EXPECT_NE(message.find("cannot run apt-get"), std::string::npos) << message;
  EXPECT_NE(message.find("--from FILE.deb"), std::string::npos) << message;
  EXPECT_FALSE(std::filesystem::exists(folder_.file("out")));
  EXPECT_EQ(on_disk::files_in(temporary), 0);
}

TEST_F(DebianPackage, OneFileOutOfAPackage) {
  if (access("/usr/bin/dpkg-deb", X_OK) != 0) GTEST_SKIP() << "this system has no dpkg-deb";
  const std::string tree = folder_.file("tree");
  std::filesystem::create_directories(tree + "/DEBIAN");
  std::filesystem::create_directories(tree + "/usr/share/a");
  on_disk::put(tree + "/DEBIAN/control",
               "Package: a\nVersion: 1\nArchitecture: all\nMaintainer: a <a@example.org>\n"
               "Description: a\n");
  on_disk::put(tree + "/usr/share/a/Rdata.rdb", "what it holds");
  ASSERT_EQ(detail::run_program({"dpkg-deb", "-b", tree, folder_.file("a.deb")}, folder_.path())
                .exit_code,
            0);
  const std::string out = folder_.file("out");
  std::filesystem::create_directory(out);
  EXPECT_EQ(on_disk::get(unpack_debian_file(folder_.file("a.deb"), "Rdata.rdb", out)),
            "what it holds");
  EXPECT_NE(message_of<EnvironmentError>([&] {
              unpack_debian_file(folder_.file("a.deb"), "other", out);
            }).find("no file called other"),
            std::string::npos);
  on_disk::put(folder_.file("bad.deb"), "no archive");
  EXPECT_NE(message_of<EnvironmentError>([&] {
              unpack_debian_file(folder_.file("bad.deb"), "other", out);
            }).find("bad.deb"),
            std::string::npos);
}

TEST_F(DebianPackage, ProgramsGetTheirWordsUnchanged) {
  program("words", "for word; do echo \"<$word>\"; done; pwd; cat; exit 3\n");
  const auto result = detail::run_program({"words", "a b", "$HOME;*", ""}, programs_);
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.output, "<a b>\n<$HOME;*>\n<>\n" + programs_ + "\n");
}

TEST_F(DebianPackage, LongOutputKeepsItsEnd) {
  program("talk", "i=0; while [ $i -lt 20000 ]; do echo 0123456789; i=$((i+1)); done; echo end\n");
  const auto result = detail::run_program({"talk"}, programs_);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_LE(result.output.size(), 65536u);
  EXPECT_TRUE(result.output.ends_with("0123456789\nend\n"));
}

/// Ctrl-C while apt-get runs: it is stopped, and the caller unwinds.
TEST_F(DebianPackage, AnInterruptIsPassedOn) {
  program("wait_for_it", "kill -TERM $PPID; exec sleep 60\n");
  try {
    detail::run_program({"wait_for_it"}, programs_);
    FAIL() << "the interrupt got lost";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 128 + SIGTERM);
  }
}

}  // namespace
}  // namespace lockstep::files
