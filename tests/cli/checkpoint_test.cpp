// `lockstep checkpoint` as a user or a script runs it.

#include "lockstep/cli/checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <iostream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/model_file.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/cli/text_table.h"
#include "tests/checkpoint/saved.h"
#include "tests/files/on_disk.h"
#include "tests/support/temp_folder.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;
using checkpoints::testing::save_some;
using on_disk::message_of;

class CheckpointCommand : public ::testing::Test {
 protected:
  CheckpointCommand() {
    fs::create_directories(run_);
    for (const int64_t step : {10, 20, 30}) save_some(folder_of(step), step, float(step));
  }
  std::string folder_of(int64_t step) const {
    return run_ + "/checkpoints/" + checkpoints::folder_name(step);
  }

  /// Runs the command; what it wrote to stdout is in `out_`.
  int checkpoint(const std::vector<std::string>& args) {
    std::ostringstream out;
    std::streambuf* const before = std::cout.rdbuf(out.rdbuf());
    try {
      const int code = checkpoint_command(args);
      std::cout.rdbuf(before);
      out_ = out.str();
      return code;
    } catch (...) {
      std::cout.rdbuf(before);
      throw;
    }
  }
  nlohmann::json json(std::vector<std::string> args, int code = 0) {
    args.push_back("--json");
    EXPECT_EQ(checkpoint(args), code);
    return nlohmann::json::parse(out_);
  }
  void expect_out(const std::string& part) {
    EXPECT_NE(out_.find(part), std::string::npos) << "looked for: " << part << "\nin: " << out_;
  }
  template <class Error_>
  void expect_refused(const std::vector<std::string>& args, const std::string& part) {
    const std::string message = message_of<Error_>([&] { checkpoint(args); });
    EXPECT_NE(message.find(part), std::string::npos)
        << "looked for: " << part << "\nin: " << message;
  }

  lockstep::testing::TempFolder temporary_;
  std::string run_ = temporary_.file("run");
  std::string out_;
};

TEST_F(CheckpointCommand, ListsNewestFirst) {
  const auto listed = json({"ls", run_});
  ASSERT_EQ(listed["checkpoints"].size(), 3u);
  EXPECT_EQ(listed["checkpoints"][0]["step"], 30);
  EXPECT_EQ(listed["checkpoints"][0]["folder"], folder_of(30));
  EXPECT_EQ(listed["checkpoints"][2]["files"], 4);
  EXPECT_EQ(checkpoint({"ls", run_}), 0);
  expect_out("step  saved at              ranks  files");
  expect_out("  30  2024-05-01T12:00:00Z");

  on_disk::put(folder_of(20) + "/manifest.json", "{}");
  EXPECT_EQ(checkpoint({"ls", run_}), 0);
  expect_out("  20  damaged\n");
  EXPECT_TRUE(json({"ls", run_})["checkpoints"][1].contains("damaged"));

  expect_refused<UsageError>({"ls", folder_of(10)}, "lockstep checkpoint inspect");
  expect_refused<StateError>({"ls", temporary_.file("none")}, "there is no run or checkpoint");
  expect_refused<StateError>({"ls", temporary_.path()}, "checkpoint.every=STEPS");
}

TEST_F(CheckpointCommand, InspectsARunsNewest) {
  const auto newest = json({"inspect", run_});
  EXPECT_EQ(newest["folder"], folder_of(30));
  const auto inspected = json({"inspect", folder_of(10), "--tensors"});
  EXPECT_EQ(inspected["step"], 10);
  EXPECT_EQ(inspected["identity"], "kernels fused");
  EXPECT_EQ(inspected["ranks"], 4);
  EXPECT_EQ(inspected["kinds"]["param"]["elements"], 61 * 8 + 24 * 8 + 64 + 8);
  EXPECT_EQ(inspected["kinds"]["running"]["tensors"], 1);
  EXPECT_EQ(inspected["files"].size(), 4u);
  EXPECT_EQ(inspected["settings"]["model.vocab"], 61);
  EXPECT_FALSE(inspected["settings"].contains("optim.lr"));  // as it is by default
  EXPECT_EQ(inspected["tensors"].size(), 17u);
  EXPECT_EQ(inspected["state"]["optimizer_steps"], 10);
  EXPECT_FALSE(newest.contains("tensors"));

  EXPECT_EQ(checkpoint({"inspect", folder_of(10), "--tensors"}), 0);
  for (const char* part : {"step        10 of 40", "saved by    4 ranks", "identity    kernels",
                           "exp_avg_sq", "part_0003.safetensors", "model.vocab", "[61, 8]"}) {
    expect_out(part);
  }
}

TEST_F(CheckpointCommand, VerifyNamesTheDamagedFile) {
  EXPECT_EQ(checkpoint({"verify", run_}), 0);
  expect_out(folder_of(30) + " is whole: step 30, 4 files");
  const std::string part = folder_of(30) + "/part_0002.safetensors";
  std::string bytes = on_disk::get(part);
  bytes.back() ^= 1;
  on_disk::put(part, bytes);
  expect_refused<StateError>({"verify", run_}, part);
  EXPECT_EQ(StateError("").exit_code(), 6);
  EXPECT_EQ(checkpoint({"verify", folder_of(20)}), 0);
}

TEST_F(CheckpointCommand, DiffSaysWhatDiffersAndExitsWithIt) {
  EXPECT_EQ(checkpoint({"diff", folder_of(10), folder_of(10)}), 0);
  expect_out("equal: 0 of 17 tensors");
  EXPECT_EQ(checkpoint({"diff", folder_of(10), run_}), 1);
  expect_out("different: 17 of 17 tensors");
  expect_out("optimizer_steps  10  30");
  const auto found = json({"diff", folder_of(10), folder_of(20)}, 1);
  EXPECT_FALSE(found["equal"]);
  EXPECT_EQ(found["tensors"].size(), 17u);
  EXPECT_NEAR(found["tensors"][0]["largest_absolute"].get<double>(), 10, 1e-5);

  const std::string file = temporary_.file("model.safetensors");
  checkpoints::write_model_file(file, *checkpoints::open_weights(folder_of(20)));
  EXPECT_EQ(checkpoint({"diff", folder_of(20), file}), 0);
  EXPECT_EQ(checkpoint({"diff", file, folder_of(30)}), 1);
  expect_refused<StateError>({"diff", file, temporary_.file("none")}, "none");
}

TEST_F(CheckpointCommand, ReshardedIsEqual) {
  const std::string to = temporary_.file("two");
  EXPECT_EQ(checkpoint({"reshard", run_, to, "-n", "2"}), 0);
  expect_out(folder_of(30) + " -> " + to + ": step 30 in 2 files");
  EXPECT_EQ(json({"inspect", to})["files"].size(), 2u);
  EXPECT_EQ(checkpoint({"verify", to}), 0);
  EXPECT_EQ(checkpoint({"diff", run_, to}), 0);
  expect_refused<UsageError>({"reshard", run_, to}, "is there already");
  expect_refused<UsageError>({"reshard", run_, temporary_.file("x"), "-n", "0"}, "--files");
}

TEST_F(CheckpointCommand, PruneSaysWhatGoesAndKeepsTheRest) {
  EXPECT_EQ(checkpoint({"prune", run_, "--keep", "1", "--keep-every", "20", "--dry-run"}), 0);
  EXPECT_EQ(out_, "would remove " + folder_of(10) + "\n");
  EXPECT_TRUE(fs::exists(folder_of(10)));
  EXPECT_EQ(checkpoint({"prune", run_, "--keep", "1", "--keep-every", "20"}), 0);
  EXPECT_EQ(out_, "removed " + folder_of(10) + "\n");
  EXPECT_FALSE(fs::exists(folder_of(10)));
  EXPECT_EQ(checkpoint({"prune", run_, "--keep", "2"}), 0);
  EXPECT_EQ(out_, "nothing to remove in " + run_ + "\n");
  expect_refused<UsageError>({"prune", run_}, "--keep");
  expect_refused<UsageError>({"prune", run_, "--keep", "0"}, "--keep");
  expect_refused<UsageError>({"prune", folder_of(30), "--keep", "1"}, "is a checkpoint");

  // Where the newest cannot be used, the older ones are all there is.
  fs::remove(folder_of(30) + "/part_0001.safetensors");
  expect_refused<StateError>({"prune", run_, "--keep", "1"}, "part_0001.safetensors");
  EXPECT_TRUE(fs::exists(folder_of(20)));
}

TEST_F(CheckpointCommand, UnknownWordsAreAskedBack) {
  expect_refused<UsageError>({"inspekt", run_}, "Did you mean inspect?");
  expect_refused<UsageError>({"xyzzy"}, "there is ls, inspect, verify, diff");
  expect_refused<UsageError>({"ls", run_, "--jsno"}, "did you mean --json?");
  expect_refused<UsageError>({"diff", run_}, "B is required");
}

TEST(TextTable, ColumnsAreAsWideAsTheyNeed) {
  EXPECT_EQ(table_text({{"name", "count"}, {"a", "1,000"}, {"longer", "7"}}, 2),
            "  name    count\n  a       1,000\n  longer      7\n");
  EXPECT_EQ(table_text({{"what", "A"}, {"x", ""}}), "what  A\nx\n");
  EXPECT_EQ(table_text({}), "");
}

}  // namespace
}  // namespace lockstep::cli
