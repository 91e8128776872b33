// CKPT-8, BAD-2: files that could run code, are cut short or something else, wherever a command
// takes a file.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "lockstep/base/units.h"
#include "tests/command/command.h"

namespace lockstep::testing {
namespace {

struct Place {
  const char* name;
  std::vector<std::string> arguments;  // FILE stands for the file
  int exit_code;
};

class HostileFiles : public ::testing::TestWithParam<Place> {
 protected:
  std::string put(const std::string& name, const std::string& bytes) const {
    const std::string path = folder_.file(name);
    std::ofstream(path, std::ios::binary).write(bytes.data(), std::ssize(bytes));
    return path;
  }

  CommandResult give(const std::string& path) const {
    std::vector<std::string> arguments = GetParam().arguments;
    for (std::string& argument : arguments) {
      if (const size_t at = argument.find("FILE"); at != std::string::npos) {
        argument.replace(at, 4, path);
      }
    }
    return lockstep(arguments, {"LOCKSTEP_SET_RUN__DIR=" + folder_.file("runs")});
  }

  TempFolder folder_;
};

TEST_P(HostileFiles, CKPT_8_AreNamedAndNotRun) {
  const std::string canary = folder_.file("canary");
  const std::string pickle =
      "\x80\x02"
      "cposix\nsystem\nX" +
      std::string("\x10\0\0\0", 4) + "touch " + canary + "q\x01\x85R.";
  for (const auto& [name, bytes] : std::vector<std::pair<std::string, std::string>>{
           {"pickle", pickle},
           {"zip", std::string("PK\x03\x04", 4) + pickle},
           {"bomb", std::string("PK\x03\x04", 4) + std::string(MiB, '\0')}}) {
    const std::string path = put(name, bytes);
    const CommandResult result = give(path);
    EXPECT_EQ(result.exit_code, GetParam().exit_code) << name << ": " << result.err;
    EXPECT_NE(result.err.find(path), std::string::npos) << result.err;
  }
  EXPECT_FALSE(std::filesystem::exists(canary));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("runs"))) << "a run folder for nothing";
}

INSTANTIATE_TEST_SUITE_P(
    Command, HostileFiles,
    ::testing::Values(
        Place{"Generate", {"generate", "FILE"}, 6}, Place{"Eval", {"eval", "FILE"}, 6},
        Place{"TrainFrom", {"train", "--preset", "nano", "--set", "run.from=FILE"}, 6},
        Place{"Config", {"train", "FILE"}, 2},
        Place{"Tokens", {"train", "--preset", "nano", "--set", "data.train=FILE"}, 3}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lockstep::testing
