// Checkpoints on a disk that is full, read-only or gone: what the error says, and what stays.

#include <gtest/gtest.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "lockstep/base/str.h"
#include "lockstep/checkpoint/weights.h"
#include "tests/files/on_disk.h"
#include "tests/train/checkpoint_rig.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::expect_whole;
using testing::SavingRank;
using testing::SavingRun;

/// Something that a save runs into. `begin` before it, `end` after it, on one rank.
struct Fault {
  std::function<void(const SavingRun&)> begin;
  std::function<void(const SavingRun&)> end;
  std::vector<std::string> words;  // that the error has
  std::function<void(const SavingRun&)> before_write = [](const SavingRun&) {};
};

/// Saves at steps 2 and 6 do well, the one at step 4 meets the fault: on all ranks the same error;
/// values, the older checkpoint and the next save are as if it had not been.
void expect_survived(const Fault& fault, SavingRun& run, int ranks, bool async) {
  SCOPED_TRACE(base::str(ranks, " ranks, ", async ? "async" : "sync"));
  run.on(ranks, [&](SavingRank& rank) {
    int writes = 0;
    rank.open({.async = async, .before_write = [&] {
                 if (++writes == 2) fault.before_write(run);
               }});
    EXPECT_EQ(rank.try_to_save(2), "");
    rank.train();
    const std::string before = rank.trainer->state().digest();
    if (rank.rank() == 0) fault.begin(run);
    rank.context.world->barrier();
    const std::string failure = rank.try_to_save(4);
    rank.context.world->barrier();
    if (rank.rank() == 0) fault.end(run);
    rank.context.world->barrier();
    EXPECT_NE(failure.find("the checkpoint of step 4 was not "), std::string::npos) << failure;
    for (const std::string& word : fault.words) {
      EXPECT_NE(failure.find(word), std::string::npos) << failure;
    }
    EXPECT_EQ(rank.trainer->state().digest(), before);
    EXPECT_EQ(rank.try_to_save(6), "");
    EXPECT_EQ(checkpoints::read_manifest(rank.folder(6)).param_digest, before);
  });
  const auto found = checkpoints::complete_checkpoints(run.folder());
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].step, 6);
  EXPECT_EQ(found[1].step, 2);
  expect_whole(run.folder());
}

void expect_survived(const Fault& fault) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const bool async : {true, false}) {
      SavingRun run;
      run.config.optim.ema = 0.5;
      expect_survived(fault, run, ranks, async);
    }
  }
}

TEST(CheckpointFaults, NoFileGrowsAnyMore) {
  std::unique_ptr<on_disk::FileSizeLimit> limit;
  expect_survived(
      {.begin = [&](const SavingRun&) { limit = std::make_unique<on_disk::FileSizeLimit>(20'000); },
       .end = [&](const SavingRun&) { limit.reset(); },
       .words = {"cannot write ", "/checkpoints/step_00000004.tmp-",
                 ".safetensors (after 20,000 bytes): File too large."}});
}

TEST(CheckpointFaults, TheUnfinishedFolderIsRemoved) {
  const auto nothing = [](const SavingRun&) {};
  expect_survived({.begin = nothing,
                   .end = nothing,
                   .words = {"/checkpoints/step_00000004.tmp-", "No such file or directory"},
                   .before_write = [](const SavingRun& run) {
                     std::error_code error;
                     for (const auto& entry : fs::directory_iterator(run.checkpoints(), error)) {
                       if (entry.path().string().find(".tmp-") == std::string::npos) continue;
                       fs::remove_all(entry.path(), error);
                     }
                   }});
}

TEST(CheckpointFaults, AFileStandsWhereTheFolderShould) {
  expect_survived(
      {.begin =
           [](const SavingRun& run) {
             fs::rename(run.checkpoints(), run.folder() + "/aside");
             on_disk::put(run.checkpoints(), "a file");
           },
       .end =
           [](const SavingRun& run) {
             fs::remove(run.checkpoints());
             fs::rename(run.folder() + "/aside", run.checkpoints());
           },
       .words = {"was not begun: cannot make the folder ", "/checkpoints", "Not a directory"}});
}

/// A file system of one MiB for the checkpoints, while it lives.
class SmallDisk {
 public:
  explicit SmallDisk(const SavingRun& run) : folder_(run.checkpoints()) {
    fs::create_directories(folder_);
    mounted = mount("lockstep-test", folder_.c_str(), "tmpfs", 0, "size=1m") == 0;
    if (!mounted) why_not = std::strerror(errno);
  }
  ~SmallDisk() {
    if (mounted) umount2(folder_.c_str(), MNT_DETACH);
  }

  bool mounted = false;
  std::string why_not;

 private:
  std::string folder_;
};

TEST(CheckpointFaults, TheDiskIsFull) {
  const auto filler = [](const SavingRun& run) { return run.checkpoints() + "/filler"; };
  for (const int ranks : {1, 2, 3, 4}) {
    for (const bool async : {true, false}) {
      SavingRun run;
      const SmallDisk disk(run);
      if (!disk.mounted) GTEST_SKIP() << "not permitted to mount: " << disk.why_not;
      const Fault full{.begin =
                           [&](const SavingRun& of) {
                             std::ofstream out(filler(of));
                             const std::string page(4096, 'x');
                             while (out.write(page.data(), std::ssize(page)).flush()) {
                             }
                           },
                       .end = [&](const SavingRun& of) { fs::remove(filler(of)); },
                       .words = {"cannot write ", "/checkpoints/step_00000004.tmp-",
                                 " bytes): ", "No space left on device"}};
      expect_survived(full, run, ranks, async);
    }
  }
}

TEST(CheckpointFaults, TheDiskIsReadOnly) {
  for (const int ranks : {1, 4}) {
    SavingRun run;
    const SmallDisk disk(run);
    if (!disk.mounted) GTEST_SKIP() << "not permitted to mount: " << disk.why_not;
    const auto remount = [](unsigned long flags) {
      return [flags](const SavingRun& of) {
        EXPECT_EQ(mount("lockstep-test", of.checkpoints().c_str(), "tmpfs", MS_REMOUNT | flags,
                        "size=1m"),
                  0)
            << std::strerror(errno);
      };
    };
    expect_survived({.begin = remount(MS_RDONLY),
                     .end = remount(0),
                     .words = {"was not begun: cannot make the folder ", "Read-only file system"}},
                    run, ranks, /*async=*/true);
  }
}

/// The whole loop: it stops after the step at hand, saves the model, and throws.
TEST(CheckpointFaults, ARunThatCannotSaveStopsAndSavesTheModel) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const bool async : {true, false}) {
      SCOPED_TRACE(base::str(ranks, " ranks, ", async ? "async" : "sync"));
      SavingRun run;
      run.config.run.steps = 50;
      run.config.checkpoint.every = 2;
      run.config.checkpoint.async = async;
      on_disk::put(run.checkpoints(), "a file");
      const std::vector<std::string> failures = run.train(ranks);
      for (const std::string& failure : failures) {
        EXPECT_NE(failure.find("the checkpoint of step 2 was not begun: cannot make the folder " +
                               run.checkpoints() + ": Not a directory."),
                  std::string::npos)
            << failure;
        EXPECT_NE(failure.find("No checkpoint of this run is complete."), std::string::npos)
            << failure;
      }
      EXPECT_TRUE(fs::exists(run.folder() + "/final.safetensors"));
      // Requests are agreed on once a step: the next one is the last.
      EXPECT_LE(checkpoints::open_weights(run.folder() + "/final.safetensors")->origin().step, 3);
    }
  }
}

}  // namespace
}  // namespace lockstep
