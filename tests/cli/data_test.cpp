#include "lockstep/cli/data.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/files/temp_folder.h"

namespace lockstep::cli {
namespace {

class DataCommand : public ::testing::Test {
 protected:
  void put(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_.file(name), std::ios::binary) << bytes;
  }

  /// What `lockstep data ARGS...` writes to stdout; stderr is dropped.
  std::string output_of(const std::vector<std::string>& args) const {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    exit_code_ = -1;
    try {
      exit_code_ = data_command(args);
    } catch (const Error& error) {
      exit_code_ = error.exit_code();
      message_ = error.what();
    }
    (void)testing::internal::GetCapturedStderr();
    return testing::internal::GetCapturedStdout();
  }

  files::TempFolder folder_{"data test"};
  mutable int exit_code_ = -1;
  mutable std::string message_;
};

TEST_F(DataCommand, PreparesATextAndShowsIt) {
  put("my text.txt", "one\ttwo \xc3\xbc\n" + std::string(200, 'x'));
  const std::string out = folder_.file("made for it/data");
  EXPECT_EQ(output_of({"prepare", "text", "--from", folder_.file("my text.txt"), "--out", out}), "")
      << "stdout is for results";
  EXPECT_EQ(exit_code_, 0);

  const std::string seen = output_of({"inspect", out + "/train.bin", "--context", "10"});
  EXPECT_EQ(exit_code_, 0);
  EXPECT_NE(seen.find("189, largest id 195"), std::string::npos) << seen;
  EXPECT_NE(seen.find("bytes, 256 ids"), std::string::npos) << seen;
  EXPECT_NE(seen.find("18 of context 10"), std::string::npos) << seen;
  EXPECT_NE(seen.find("one\\x09two \xc3\xbc\\nxxx"), std::string::npos) << seen;
}

TEST_F(DataCommand, DataOfAnotherSourceAreNotWrittenOver) {
  put("a.txt", std::string(100, 'a'));
  put("b.txt", std::string(200, 'b'));
  const std::string out = folder_.file("made");
  const std::string a = folder_.file("a.txt");
  const std::string b = folder_.file("b.txt");
  const auto prepare = [&](const std::string& from) {
    output_of({"prepare", "text", "--from", from, "--out", out});
    return exit_code_;
  };
  EXPECT_EQ(prepare(a), 0);
  put("a.txt", std::string(300, 'a'));
  EXPECT_EQ(prepare(a), 0) << "the same source, grown";
  EXPECT_EQ(std::filesystem::file_size(out + "/train.bin"), 540u);
  EXPECT_EQ(prepare(b), 2);
  EXPECT_TRUE(message_.starts_with(out + " holds data of another source, " + a)) << message_;
  output_of({"prepare", "austen", "--from", "never-read.rdb", "--out", out});
  EXPECT_EQ(exit_code_, 2) << "the novels do not go over it either";
  EXPECT_TRUE(message_.starts_with(out + " holds data of another source, " + a)) << message_;
  std::filesystem::remove(out + "/meta.json");
  EXPECT_EQ(prepare(a), 2);
  EXPECT_TRUE(message_.starts_with(out + " holds a train.bin without meta.json")) << message_;
  EXPECT_EQ(std::filesystem::file_size(out + "/train.bin"), 540u);
  output_of({"prepare", "text", "--from", b, "--out", out, "--force"});
  EXPECT_EQ(exit_code_, 0);
  EXPECT_EQ(std::filesystem::file_size(out + "/train.bin"), 360u);
}

TEST_F(DataCommand, InspectNeedsNoMeta) {
  put("t.bin", std::string("\x00\x01\x05\x00\x07\x00", 6));
  const std::string seen = output_of({"inspect", folder_.file("t.bin")});
  EXPECT_EQ(exit_code_, 0);
  EXPECT_NE(seen.find("3, largest id 256"), std::string::npos) << seen;
  EXPECT_NE(seen.find("0 of context 128"), std::string::npos) << seen;
  EXPECT_EQ(seen.find("begins"), std::string::npos) << "ids above 255 are no bytes to show";
}

TEST_F(DataCommand, InspectFindsIdsBeyondTheVocabulary) {
  put("t.bin", std::string("\x05\x00\x00\x01", 4));
  put("meta.json", "{\"tokenizer\":\"bytes\",\"vocab_size\":256}");
  output_of({"inspect", folder_.file("t.bin")});
  EXPECT_EQ(exit_code_, 3);
  EXPECT_NE(message_.find("token 1 has id 256"), std::string::npos) << message_;
}

TEST_F(DataCommand, WhatIsNotThereIsExitCode3) {
  output_of({"inspect", folder_.file("none.bin")});
  EXPECT_EQ(exit_code_, 3);
  EXPECT_TRUE(message_.ends_with("lockstep data prepare austen")) << message_;
  output_of({"prepare", "text", "--from", folder_.file("none.txt"), "--out", folder_.file("o")});
  EXPECT_EQ(exit_code_, 3);
  EXPECT_NE(message_.find("none.txt"), std::string::npos);
  for (const char* from : {"none.deb", "none.rdb"}) {
    output_of({"prepare", "austen", "--from", folder_.file(from), "--out", folder_.file("o")});
    EXPECT_EQ(exit_code_, 3) << from;
    EXPECT_NE(message_.find(from), std::string::npos) << message_;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_.file("o")));
}

TEST_F(DataCommand, MistakesAreExitCode2) {
  const std::vector<std::vector<std::string>> mistakes = {{},
                                                          {"prepare"},
                                                          {"prepar", "austen"},
                                                          {"prepare", "text"},
                                                          {"prepare", "austen", "--frm", "x"},
                                                          {"inspect"},
                                                          {"inspect", "a", "--context", "0"},
                                                          {"inspect", "a", "--context", "many"}};
  for (const auto& args : mistakes) {
    output_of(args);
    EXPECT_EQ(exit_code_, 2) << testing::PrintToString(args);
  }
}

TEST_F(DataCommand, WordsThatAreNotUnderstoodAreNamed) {
  output_of({"prepare", "foo"});
  EXPECT_TRUE(
      message_.starts_with("lockstep data: there is no prepare foo; there is austen and "
                           "text.\n"))
      << message_;
  output_of({"prepar", "austen"});
  EXPECT_TRUE(
      message_.starts_with("lockstep data: there is no prepar; there is prepare and "
                           "inspect.\n"))
      << message_;
  output_of({"inspect", "a", "b"});
  EXPECT_TRUE(message_.starts_with("lockstep data: \"b\" is one argument too many.\n")) << message_;
}

TEST_F(DataCommand, HelpIsNoMistake) {
  EXPECT_NE(output_of({"--help"}).find("inspect"), std::string::npos);
  EXPECT_EQ(exit_code_, 0);
  EXPECT_NE(output_of({"prepare", "austen", "--help"}).find("--from"), std::string::npos);
  EXPECT_EQ(exit_code_, 0);
}

}  // namespace
}  // namespace lockstep::cli
