// SIGKILL at each moment of a save, on each rank: what was complete stays complete, what is listed
// is whole, and a resume comes to the bits of the unbroken run.

#include <gtest/gtest.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/checkpoint/reader.h"
#include "tests/command/command.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using checkpoints::checkpoints_of;
using checkpoints::complete_checkpoints;
using checkpoints::Found;

constexpr int kRanks = 4;
constexpr int kSteps = 12;  // with a save after every second one
constexpr int kKept = 3;

/// Complete checkpoints are each whole and of one step; there is no gap between them, so none was
/// lost. The step of the newest.
int64_t expect_whole(const std::string& run) {
  const std::vector<Found> all = complete_checkpoints(run);
  EXPECT_FALSE(all.empty());
  if (all.empty()) return -1;
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].step, all[0].step - 2 * static_cast<int64_t>(i)) << "one is missing";
    try {
      const checkpoints::Reader reader(all[i].folder);
      reader.verify();
      EXPECT_EQ(reader.manifest().step, all[i].step);
      EXPECT_EQ(std::ssize(reader.manifest().files), reader.manifest().world);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
  EXPECT_GE(std::ssize(all), std::min<int64_t>(kKept, all[0].step / 2));
  return all[0].step;
}

void expect_nothing_unfinished(const std::string& run) {
  for (const auto& entry : fs::recursive_directory_iterator(run)) {
    EXPECT_EQ(entry.path().string().find(".tmp-"), std::string::npos) << entry.path();
  }
}

/// A run that was not broken, and copies of it as it was after its first save.
class Crashes : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { suite_ = new Suite; }
  static void TearDownTestSuite() {
    delete suite_;
    suite_ = nullptr;
  }

  struct Suite {
    Suite() {
      std::ofstream(folder.file("worker"))
          << "#!/bin/sh\nexec '" << beside("lockstep-worker") << "' \"$@\" $(cat '"
          << folder.file("kill_at") << "')\n";
      fs::permissions(folder.file("worker"), fs::perms::owner_all);
      kill_at("");
      std::vector<std::string> words = tiny_nano();
      words.insert(words.end(), {"-n", std::to_string(kRanks)});
      for (const std::string& setting :
           {base::str("run.steps=", kSteps), std::string("checkpoint.every=2"),
            std::string("checkpoint.keep=99"), std::string("log.tensorboard=false"),
            "run.worker=" + folder.file("worker")}) {
        words.insert(words.end(), {"--set", setting});
      }
      const nlohmann::json summary = train(folder, words);
      run = summary["run"];
      digest = summary["param_digest"];
    }
    void kill_at(const std::string& option) { std::ofstream(folder.file("kill_at")) << option; }

    TempFolder folder;
    std::string run;
    std::string digest;
  };

  static Suite& suite() { return *suite_; }

  /// A copy of the run, with the first of its checkpoints alone.
  static std::string copy_after_the_first_save(const TempFolder& folder) {
    std::string copy = folder.file("run");
    const std::string first = checkpoints::folder_name(2);
    fs::create_directories(checkpoints_of(copy));
    for (const char* name : {"config.json", "config.toml"}) {
      fs::copy(suite().run + "/" + name, copy + "/" + name);
    }
    fs::copy(checkpoints_of(suite().run) + "/" + first, checkpoints_of(copy) + "/" + first);
    return copy;
  }

  static CommandResult resume(const std::string& run, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"train",  "--resume", run,
                                      "--json", "--set",    base::str("checkpoint.keep=", kKept)};
    words.insert(words.end(), more.begin(), more.end());
    return lockstep(words);
  }

  static void expect_the_unbroken_end(const std::string& run) {
    const CommandResult result = resume(run);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(nlohmann::json::parse(result.out)["param_digest"], suite().digest);
    EXPECT_EQ(expect_whole(run), kSteps);
    expect_nothing_unfinished(run);
  }

  /// Rank `rank` dies at its `point`-th point of the saves from step 4 on.
  static void crash(int rank, int point, bool to_the_end) {
    SCOPED_TRACE(base::str("rank ", rank, " at write point ", point));
    const TempFolder folder;
    const std::string run = copy_after_the_first_save(folder);
    suite().kill_at(base::str("--kill-at ", rank, ":", point));
    const CommandResult result = resume(run);
    suite().kill_at("");
    EXPECT_EQ(result.exit_code, 4) << result.err;
    EXPECT_NE(result.err.find(base::str("[rank ", rank, " of ", kRanks, "]")), std::string::npos)
        << result.err;
    const int64_t newest = expect_whole(run);
    // A rank passes 4 points for its part, rank 0 as many for index and for manifest, and 3 more.
    const int64_t saves_done = point / (rank == 0 ? 15 : 4);
    EXPECT_GE(newest, 2 + 2 * (saves_done - (rank == 0 ? 0 : 1)));
    if (to_the_end) expect_the_unbroken_end(run);
  }

 private:
  static Suite* suite_;
};

Crashes::Suite* Crashes::suite_ = nullptr;

TEST_F(Crashes, LeaveWholeCheckpoints) {
  for (const int point : {0, 3, 8}) {
    for (int rank = 0; rank < kRanks; ++rank) {
      // A part begun, an index durable but not in place, and what comes with the saves after it.
      crash(rank, (point + 5 * rank) % 20, /*to_the_end=*/point == 3);
    }
  }
}

TEST_F(Crashes, LongLeaveWholeCheckpointsAtEveryPoint) {
  for (int rank = 0; rank < kRanks; ++rank) {
    for (int point = 0; point < 20; ++point) crash(rank, point, /*to_the_end=*/true);
  }
}

/// A disk for the checkpoints of `run`, too small for a third one.
class SmallDisk {
 public:
  explicit SmallDisk(const std::string& run) : folder_(checkpoints_of(run)) {
    const std::string aside = run + "/aside";
    fs::rename(folder_, aside);
    fs::create_directory(folder_);
    int64_t bytes = 0;
    for (const auto& file : fs::recursive_directory_iterator(aside)) {
      if (file.is_regular_file()) bytes += static_cast<int64_t>(file.file_size());
    }
    const std::string options = base::str("size=", 5 * bytes / 2);
    mounted = mount("lockstep-test", folder_.c_str(), "tmpfs", 0, options.c_str()) == 0;
    if (!mounted) why_not = std::strerror(errno);
    fs::copy(aside, folder_, fs::copy_options::recursive);
    fs::remove_all(aside);
  }
  ~SmallDisk() {
    if (mounted) umount2(folder_.c_str(), MNT_DETACH);
  }
  void grow() const {
    EXPECT_EQ(mount("lockstep-test", folder_.c_str(), "tmpfs", MS_REMOUNT, "size=64m"), 0);
  }

  bool mounted = false;
  std::string why_not;

 private:
  std::string folder_;
};

TEST_F(Crashes, AFullDiskEndsTheRunWithItsModelSavedAndItsCheckpointsWhole) {
  for (const bool async : {true, false}) {
    const TempFolder folder;
    const std::string run = copy_after_the_first_save(folder);
    const SmallDisk disk(run);
    if (!disk.mounted) GTEST_SKIP() << "not permitted to mount: " << disk.why_not;
    const CommandResult result =
        resume(run, {"--set", base::str("checkpoint.async=", async ? "true" : "false")});
    EXPECT_EQ(result.exit_code, 6) << result.err;
    for (const std::string& word :
         {std::string("the checkpoint of step 6 was not saved: cannot write "),
          std::string(" bytes): No space left on device."),
          "The newest complete one is " + checkpoints_of(run) + "/step_00000004."}) {
      EXPECT_NE(result.err.find(word), std::string::npos) << word << "\n" << result.err;
    }
    EXPECT_TRUE(fs::exists(run + "/final.safetensors"));
    EXPECT_EQ(expect_whole(run), 4);
    expect_nothing_unfinished(run);
    disk.grow();
    expect_the_unbroken_end(run);
  }
}

}  // namespace
}  // namespace lockstep::testing
