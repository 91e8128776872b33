#include "lockstep/files/block_file.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "lockstep/base/counter_random.h"
#include "lockstep/base/error.h"
#include "lockstep/base/units.h"
#include "tests/files/on_disk.h"
#include "tests/support/temp_folder.h"

namespace lockstep::files {
namespace {

using Engine = BlockFileOptions::Engine;

// In place of std::string: its memory is where we want it.
AlignedBuffer filled(int64_t bytes, uint64_t seed) {
  AlignedBuffer buffer(bytes);
  const base::RandomKey key(seed);
  for (int64_t i = 0; i < bytes; i += 8) {
    const uint64_t draw = key.bits(static_cast<uint64_t>(i));
    std::memcpy(buffer.data() + i, &draw, static_cast<size_t>(std::min<int64_t>(8, bytes - i)));
  }
  return buffer;
}

class BlockFileTest : public ::testing::TestWithParam<Engine> {
 protected:
  BlockFileOptions options(bool direct = true) const {
    return {.engine = GetParam(), .direct = direct};
  }

  void SetUp() override {
    if (GetParam() != Engine::io_uring) return;
    try {
      BlockFile(folder_.path(), 4096, options());
    } catch (const UsageError& error) {
      GTEST_SKIP() << error.what();
    }
  }

  testing::TempFolder folder_;
};

TEST_P(BlockFileTest, AnyOffsetAndSizeComesBack) {
  constexpr int64_t kBytes = 4 * MiB + 77;
  for (const bool direct : {true, false}) {
    BlockFile file(folder_.path(), kBytes, options(direct));
    AlignedBuffer expected(kBytes);
    std::memset(expected.data(), 0, static_cast<size_t>(kBytes));  // as it reads at first
    const base::RandomKey key(7);
    for (uint64_t round = 0; round < 40; ++round) {
      // One page, its edges, and runs of more than a bounce buffer; the memory is odd, too.
      const int64_t offset = static_cast<int64_t>(key.below(3 * round, kBytes));
      const int64_t most = std::min(round % 2 == 0 ? 9000 : kBytes, kBytes - offset);
      const int64_t size =
          static_cast<int64_t>(key.below(3 * round + 1, static_cast<uint64_t>(most))) + 1;
      const int64_t shift = static_cast<int64_t>(key.below(3 * round + 2, 65));
      const AlignedBuffer data = filled(size + shift, round);
      file.wait(file.write(offset, data.data() + shift, size));
      std::memcpy(expected.data() + offset, data.data() + shift, static_cast<size_t>(size));
      AlignedBuffer back(size + shift);
      file.wait(file.read(offset, back.data() + shift, size));
      ASSERT_EQ(std::memcmp(back.data() + shift, data.data() + shift, static_cast<size_t>(size)), 0)
          << "round " << round << " of " << size << " at " << offset;
    }
    AlignedBuffer all(kBytes);
    file.wait(file.read(0, all.data(), kBytes));
    EXPECT_EQ(std::memcmp(all.data(), expected.data(), static_cast<size_t>(kBytes)), 0)
        << "what stood beside the writes was changed";
  }
}

TEST_P(BlockFileTest, ManyAreUnderWayAtOnce) {
  constexpr int64_t kBlock = 64 * KiB;
  constexpr int64_t kBlocks = 150;  // more than the engine takes
  BlockFile file(folder_.path(), kBlocks * kBlock, options());
  const AlignedBuffer data = filled(kBlocks * kBlock, 1);
  AlignedBuffer back(kBlocks * kBlock);
  std::vector<BlockFile::Ticket> tickets;
  for (int64_t i = 0; i < kBlocks; ++i) {
    tickets.push_back(file.write(i * kBlock, data.data() + i * kBlock, kBlock));
  }
  for (int64_t i = kBlocks - 1; i >= 0; --i) {  // each waits for its own write only
    tickets.push_back(file.read(i * kBlock, back.data() + i * kBlock, kBlock));
  }
  for (const BlockFile::Ticket ticket : tickets) file.wait(ticket);
  for (const BlockFile::Ticket ticket : tickets) file.wait(ticket);  // again: at once
  EXPECT_EQ(std::memcmp(back.data(), data.data(), static_cast<size_t>(data.bytes())), 0);
  EXPECT_EQ(file.bytes_written(), kBlocks * kBlock);
  EXPECT_EQ(file.bytes_read(), kBlocks * kBlock);
  EXPECT_EQ(file.bounce_bytes(), 0) << "aligned transfers go straight";
}

TEST_P(BlockFileTest, HoldsFewBounces) {
  BlockFile file(folder_.path(), 40 * MiB, options());
  const AlignedBuffer data = filled(32 * MiB, 1);
  AlignedBuffer back(32 * MiB);
  file.wait(file.write(1, data.data(), data.bytes()));
  file.wait(file.read(1, back.data(), back.bytes()));
  EXPECT_EQ(std::memcmp(back.data(), data.data(), static_cast<size_t>(data.bytes())), 0);
  EXPECT_EQ(file.bounce_bytes(), 8 * MiB);
}

// Case OFF-1: blocks read back, and written again, while their write is still to come.
TEST_P(BlockFileTest, OFF_1_DelayedWritesAreWaitedFor) {
  constexpr int64_t kBlocks = 64;
  constexpr int64_t kBlock = 4096;
  const base::RandomKey key(11);
  uint64_t draws = 0;
  BlockFileOptions slow = options();
  slow.at_start = [&](bool write, int64_t, int64_t) {
    return BlockFileFault{.delay = std::chrono::milliseconds(write ? key.below(draws++, 101) : 0)};
  };
  BlockFile file(folder_.path(), kBlocks * kBlock, slow);
  const int descriptors = on_disk::files_in("/proc/self/fd");
  std::vector<AlignedBuffer> memory;
  std::vector<AlignedBuffer> swapped;
  for (int64_t i = 0; i < kBlocks; ++i) {
    memory.push_back(filled(kBlock, static_cast<uint64_t>(i)));
    swapped.push_back(filled(kBlock, static_cast<uint64_t>(i)));
  }
  for (int round = 0; round < 4; ++round) {
    for (int64_t i = 0; i < kBlocks; ++i) {
      for (AlignedBuffer* block : {&memory[i], &swapped[i]}) {
        for (int64_t k = 0; k < kBlock; ++k) block->data()[k] += static_cast<char>(round + i + k);
      }
    }
    std::vector<BlockFile::Ticket> tickets;
    for (int64_t i = 0; i < kBlocks; ++i) {
      tickets.push_back(file.write(i * kBlock, swapped[i].data(), kBlock));
    }
    // Into other memory: that of a write under way stays as it is.
    std::vector<AlignedBuffer> back;
    for (int64_t i = 0; i < kBlocks; ++i) {
      back.emplace_back(kBlock);
      tickets.push_back(file.read(i * kBlock, back[i].data(), kBlock));
      if (i % 3 == 0) tickets.push_back(file.write(i * kBlock, swapped[i].data(), kBlock));
    }
    for (const BlockFile::Ticket ticket : tickets) file.wait(ticket);
    for (int64_t i = 0; i < kBlocks; ++i) {
      ASSERT_EQ(std::memcmp(back[i].data(), memory[i].data(), kBlock), 0)
          << "block " << i << " in round " << round;
    }
    swapped = std::move(back);
  }
  EXPECT_EQ(on_disk::files_in("/proc/self/fd"), descriptors);
}

TEST_P(BlockFileTest, AWriteWaitsForTheReadOfItsPage) {
  BlockFileOptions slow = options();
  slow.at_start = [&](bool write, int64_t, int64_t) {
    return BlockFileFault{.delay = std::chrono::milliseconds(write ? 0 : 20)};
  };
  BlockFile file(folder_.path(), 8192, slow);
  const AlignedBuffer before = filled(4096, 1);
  const AlignedBuffer after = filled(4096, 2);
  AlignedBuffer back(4096);
  file.wait(file.write(0, before.data(), 4096));
  const BlockFile::Ticket read = file.read(0, back.data(), 4096);
  const BlockFile::Ticket write = file.write(0, after.data(), 4096);
  file.wait(write);
  file.wait(read);
  EXPECT_EQ(std::memcmp(back.data(), before.data(), 4096), 0);
}

TEST_P(BlockFileTest, ShortTransfersGoOn) {
  BlockFileOptions shortened = options();
  int started = 0;
  shortened.at_start = [&](bool, int64_t, int64_t) {
    ++started;
    return BlockFileFault{.at_most = 8192};
  };
  BlockFile file(folder_.path(), MiB, shortened);
  const AlignedBuffer data = filled(100'000, 1);
  AlignedBuffer back(100'000);
  file.wait(file.write(0, data.data(), data.bytes()));
  file.wait(file.read(0, back.data(), back.bytes()));
  EXPECT_EQ(std::memcmp(back.data(), data.data(), 100'000), 0);
  EXPECT_EQ(started, 1 + 13 + 13) << "the last page once before it is written in part";
}

TEST_P(BlockFileTest, AFailureNamesItselfAtOnceAndLater) {
  for (const bool write : {true, false}) {
    BlockFileOptions broken = options();
    broken.at_start = [&](bool is_write, int64_t offset, int64_t) {
      return BlockFileFault{.error =
                                is_write == write && offset == 8192 ? (write ? ENOSPC : EIO) : 0};
    };
    BlockFile file(folder_.path(), MiB, broken);
    AlignedBuffer data = filled(4096, 1);
    if (!write) file.wait(file.write(8192, data.data(), 4096));
    const auto failing =
        write ? file.write(8192, data.data(), 4096) : file.read(8192, data.data(), 4096);
    const std::string at_wait = on_disk::message_of<StateError>([&] { file.wait(failing); });
    for (const std::string& word :
         {std::string(write ? "cannot write 4,096 bytes at 8,192"
                            : "cannot read 4,096 bytes at 8,192"),
          folder_.path(), std::string(std::strerror(write ? ENOSPC : EIO))}) {
      EXPECT_NE(at_wait.find(word), std::string::npos) << at_wait << " does not say: " << word;
    }
    EXPECT_EQ(on_disk::message_of<StateError>([&] { (void)file.read(0, data.data(), 4096); }),
              at_wait);
    EXPECT_EQ(on_disk::message_of<StateError>([&] { (void)file.write(0, data.data(), 4096); }),
              at_wait);
  }
}

TEST_P(BlockFileTest, AnEdgeThatCannotBeReadIsNotWritten) {
  BlockFileOptions broken = options();
  int writes = 0;
  broken.at_start = [&](bool is_write, int64_t, int64_t) {
    writes += is_write;
    return BlockFileFault{.error = is_write ? 0 : EIO};
  };
  BlockFile file(folder_.path(), MiB, broken);
  const AlignedBuffer data = filled(100, 1);
  EXPECT_THROW(file.wait(file.write(5, data.data(), 100)), StateError);
  EXPECT_EQ(writes, 0);
}

TEST_P(BlockFileTest, SettlingWaitsForEverythingAndDoesNotThrow) {
  BlockFileOptions broken = options();
  broken.at_start = [&](bool, int64_t offset, int64_t) {
    return BlockFileFault{.delay = std::chrono::milliseconds(2), .error = offset == 0 ? EIO : 0};
  };
  BlockFile file(folder_.path(), MiB, broken);
  AlignedBuffer back(8192);
  std::memset(back.data(), 1, 8192);
  const auto failing = file.read(0, back.data(), 4096);
  (void)file.read(4096, back.data() + 4096, 4096);
  file.settle();
  EXPECT_EQ(back.data()[4096], 0) << "the read has come";
  EXPECT_THROW(file.wait(failing), StateError);
}

TEST_P(BlockFileTest, RefusesWhatIsBeyondItsEnd) {
  BlockFile file(folder_.path(), 10'000, options());
  AlignedBuffer data = filled(20'000, 1);
  EXPECT_THROW((void)file.write(0, data.data(), 10'001), UsageError);
  EXPECT_THROW((void)file.read(9'999, data.data(), 2), UsageError);
  EXPECT_THROW((void)file.read(-1, data.data(), 2), UsageError);
  EXPECT_THROW((void)file.read(0, data.data(), -1), UsageError);
  file.wait(file.write(10'000, data.data(), 0));
  EXPECT_EQ(file.bytes_written(), 0);
}

TEST_P(BlockFileTest, LeavesNothing) {
  const int descriptors = on_disk::files_in("/proc/self/fd");
  for (int i = 0; i < 20; ++i) {
    BlockFile file(folder_.path(), MiB, options());
    EXPECT_EQ(on_disk::files_in(folder_.path()), 0) << "it has no name";
    const AlignedBuffer data = filled(4096, 1);
    (void)file.write(0, data.data(), 4096);
    if (i % 2 == 0) file.settle();
  }
  EXPECT_EQ(on_disk::files_in("/proc/self/fd"), descriptors);
}

INSTANTIATE_TEST_SUITE_P(Engines, BlockFileTest,
                         ::testing::Values(Engine::io_uring, Engine::threads),
                         [](const auto& info) {
                           return info.param == Engine::threads ? "Threads" : "IoUring";
                         });

TEST(BlockFile, SaysWhereAndHow) {
  const testing::TempFolder folder;
  const BlockFile file(folder.path(), 2 * MiB, {.engine = Engine::threads, .direct = false});
  EXPECT_EQ(file.description(),
            "2.0 MiB in " + folder.path() + ", through the page cache, by two threads");
}

TEST(BlockFile, ADiskTooSmallIsFoundAtOnce) {
  const testing::TempFolder folder;
  struct statvfs room {};
  ASSERT_EQ(statvfs(folder.path().c_str(), &room), 0);
  const int64_t all = static_cast<int64_t>(room.f_blocks * room.f_frsize);
  const std::string message =
      on_disk::message_of<EnvironmentError>([&] { BlockFile(folder.path(), all + GiB); });
  EXPECT_NE(message.find(base::bytes_text(all + GiB) + " in " + folder.path()), std::string::npos)
      << message;
  EXPECT_NE(message.find("are free"), std::string::npos) << message;
}

TEST(BlockFile, ASmallTmpfsIsFullAtOnceAndServesWhatFits) {
  const testing::TempFolder folder;
  if (mount("lockstep-test", folder.path().c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "not permitted to mount: " << std::strerror(errno);
  }
  std::string message;
  std::string back(10'000, ' ');
  const std::string data(10'000, 'x');
  try {
    message = on_disk::message_of<EnvironmentError>([&] { BlockFile(folder.path(), 2 * MiB); });
    BlockFile file(folder.path(), MiB / 2);
    file.wait(file.write(3, data.data(), 10'000));
    file.wait(file.read(3, back.data(), 10'000));
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
  umount(folder.path().c_str());
  EXPECT_NE(message.find("1.0 MiB are free"), std::string::npos) << message;
  EXPECT_EQ(back, data);
}

TEST(BlockFile, ALimitOnFilesIsAnErrorAndNoSignal) {
  const testing::TempFolder folder;
  const on_disk::FileSizeLimit limit(MiB);
  const std::string message =
      on_disk::message_of<EnvironmentError>([&] { BlockFile(folder.path(), 2 * MiB); });
  EXPECT_NE(message.find("ulimit -f"), std::string::npos) << message;
}

TEST(BlockFile, AFolderThatIsNotThereIsNamed) {
  const std::string message =
      on_disk::message_of<EnvironmentError>([&] { BlockFile("/not-there/at-all", 4096); });
  EXPECT_NE(message.find("/not-there/at-all"), std::string::npos) << message;
}

}  // namespace
}  // namespace lockstep::files
