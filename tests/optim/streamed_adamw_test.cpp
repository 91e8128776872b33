#include "lockstep/optim/streamed_adamw.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/counter_random.h"
#include "lockstep/base/error.h"
#include "tests/support/temp_folder.h"

namespace lockstep::optim {
namespace {

using files::BlockFile;
using files::BlockFileFault;
using files::BlockFileOptions;

constexpr StreamOptions kSmall = {.block_elements = 1024, .blocks = 3};

// Shorter than a block, longer, one element, none, and ends inside pages.
constexpr std::array<int64_t, 8> kCounts = {1500, 7, 4096, 0, 1, 2053, 3, 10};

std::vector<float> drawn(int64_t count, uint64_t seed) {
  const base::RandomKey key(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(key.uniform(i) - 0.5);
  return values;
}

enum class Where { memory, file, mixed };  // mixed: every other span in the file

bool in_file(Where where, size_t span) {
  return where == Where::file || (where == Where::mixed && span % 2 == 0);
}

// The same parameters beside each other, updated in memory and by way of a file.
class Twins {
 public:
  Twins(const std::string& folder, Where masters, Where gradients,
        const BlockFileOptions& options = {}, const StreamOptions& stream = kSmall)
      : gradients_where_(gradients) {
    int64_t at = 0;
    for (size_t i = 0; i < kCounts.size(); ++i) {
      const int64_t count = kCounts[i];
      masters_.push_back(drawn(count, i));
      kept_.push_back(masters_.back());
      gradients_.emplace_back(static_cast<size_t>(count));
      plain_.push_back({masters_[i].data(), gradients_[i].data(), count, i % 3 == 0});
      StreamedSpan span{.count = count, .decay = i % 3 == 0};
      if (in_file(masters, i)) {
        span.master_at = at;
        at += count * 4 + (i == 2 ? 20 : 0);  // they need not follow each other
      } else {
        span.master = kept_[i].data();
      }
      spans_.push_back(span);
    }
    // Not on a page: mixed gradients need the edges of their pages kept.
    for (size_t i = 0; i < kCounts.size(); ++i) {
      if (in_file(gradients, i)) {
        spans_[i].gradient_at = at;
        at += kCounts[i] * 4;
      } else {
        spans_[i].gradient = gradients_[i].data();
      }
      total_ += kCounts[i];
    }
    const int64_t moments_at = files::whole_pages(at);
    file_ = std::make_unique<BlockFile>(
        folder, moments_at + StreamedAdamW::moment_bytes(total_, stream), options);
    in_memory_ = std::make_unique<AdamW>(AdamWOptions{}, plain_);
    streamed_ = std::make_unique<StreamedAdamW>(*file_, moments_at, AdamWOptions{}, spans_, stream);
    for (size_t i = 0; i < kCounts.size(); ++i) {
      if (spans_[i].master != nullptr) continue;
      file_->wait(
          streamed_->write_master(static_cast<int64_t>(i), 0, kCounts[i], masters_[i].data()));
    }
  }

  void step(uint64_t t) {
    for (size_t i = 0; i < kCounts.size(); ++i) {
      const std::vector<float> drawn_now = drawn(kCounts[i], 1000 * t + i);
      std::copy(drawn_now.begin(), drawn_now.end(), gradients_[i].begin());
      if (!in_file(gradients_where_, i)) continue;
      file_->wait(file_->write(spans_[i].gradient_at, gradients_[i].data(), kCounts[i] * 4));
    }
    in_memory_->step(1e-2, 0.5);
    streamed_->step(1e-2, 0.5);
  }

  std::vector<float> streamed_master(size_t span) {
    if (spans_[span].master != nullptr) return kept_[span];
    std::vector<float> values(static_cast<size_t>(kCounts[span]));
    file_->wait(
        streamed_->read_master(static_cast<int64_t>(span), 0, kCounts[span], values.data()));
    return values;
  }

  void expect_equal() {
    for (size_t i = 0; i < kCounts.size(); ++i) {
      EXPECT_EQ(streamed_master(i), masters_[i]) << "span " << i;
    }
  }

  BlockFile& file() { return *file_; }
  StreamedAdamW& streamed() { return *streamed_; }
  int64_t total() const { return total_; }
  const std::vector<float>& master(size_t span) const { return masters_[span]; }

 private:
  Where gradients_where_;
  int64_t total_ = 0;
  std::vector<std::vector<float>> masters_;
  std::vector<std::vector<float>> kept_;  // what stays in memory of the streamed ones
  std::vector<std::vector<float>> gradients_;
  std::vector<Span> plain_;
  std::vector<StreamedSpan> spans_;
  std::unique_ptr<BlockFile> file_;
  std::unique_ptr<AdamW> in_memory_;
  std::unique_ptr<StreamedAdamW> streamed_;
};

TEST(StreamedAdamW, HasTheBitsOfAdamW) {
  const testing::TempFolder folder;
  for (const Where masters : {Where::memory, Where::file, Where::mixed}) {
    for (const Where gradients : {Where::memory, Where::file, Where::mixed}) {
      Twins twins(folder.path(), masters, gradients);
      for (uint64_t t = 1; t <= 5; ++t) twins.step(t);
      twins.expect_equal();
      EXPECT_EQ(twins.streamed().steps_taken(), 5);
    }
  }
}

TEST(StreamedAdamW, BlocksAndTheirNumberDoNotMatter) {
  const testing::TempFolder folder;
  for (const StreamOptions& stream :
       {StreamOptions{1024, 3}, StreamOptions{2048, 6}, StreamOptions{8192, 3}, StreamOptions{}}) {
    Twins twins(folder.path(), Where::file, Where::memory, {}, stream);
    for (uint64_t t = 1; t <= 3; ++t) twins.step(t);
    twins.expect_equal();
  }
}

TEST(StreamedAdamW, SlowTransfersAreWaitedFor) {
  const testing::TempFolder folder;
  const base::RandomKey key(3);
  uint64_t draws = 0;
  BlockFileOptions slow;
  slow.at_start = [&](bool, int64_t, int64_t) {
    return BlockFileFault{.delay = std::chrono::microseconds(key.below(draws++, 2000))};
  };
  Twins twins(folder.path(), Where::file, Where::file, slow);
  for (uint64_t t = 1; t <= 5; ++t) twins.step(t);
  twins.expect_equal();
}

TEST(StreamedAdamW, MovesItsBytesOnce) {
  const testing::TempFolder folder;
  for (const Where where : {Where::memory, Where::file}) {
    Twins twins(folder.path(), where, where);
    twins.step(1);
    const int64_t read = twins.file().bytes_read();
    EXPECT_EQ(read, where == Where::memory ? 0 : twins.total() * 8) << "moments are zeros at first";
    const int64_t written = twins.file().bytes_written();
    twins.step(2);
    const int64_t parameters = where == Where::file ? 4 * twins.total() : 0;
    const int64_t moments = StreamedAdamW::moment_bytes(twins.total(), kSmall);
    // The gradients were written by the test.
    EXPECT_EQ(twins.file().bytes_read() - read, moments + 2 * parameters);
    EXPECT_EQ(twins.file().bytes_written() - written, moments + 2 * parameters);
    EXPECT_LT(moments, 8 * twins.total() + 2 * 4096) << "8 bytes a parameter, and whole pages";
  }
}

TEST(StreamedAdamW, HoldsItsBlocksOnly) {
  const testing::TempFolder folder;
  const StreamOptions stream = {.block_elements = 2048, .blocks = 4};
  for (const auto& [where, bytes_per_element] :
       {std::pair{Where::memory, 8}, std::pair{Where::file, 16}}) {
    const int64_t before = files::AlignedBuffer::alive_bytes();
    Twins twins(folder.path(), where, where, {}, stream);
    for (uint64_t t = 1; t <= 3; ++t) twins.step(t);
    const int64_t held = files::AlignedBuffer::alive_bytes() - before;
    EXPECT_EQ(twins.streamed().state_bytes(), 4 * 2048 * bytes_per_element);
    EXPECT_EQ(held - twins.file().bounce_bytes(), twins.streamed().state_bytes());
  }
}

TEST(StreamedAdamW, RangesOfMastersAreReadAndWritten) {
  const testing::TempFolder folder;
  Twins twins(folder.path(), Where::file, Where::memory);
  twins.step(1);
  const std::vector<float>& master = twins.master(2);
  std::vector<float> part(100);
  // Its write of the step may still be under way.
  twins.file().wait(twins.streamed().read_master(2, 1021, 1121, part.data()));
  EXPECT_EQ(part, std::vector<float>(master.begin() + 1021, master.begin() + 1121));
  const std::vector<float> other = drawn(100, 77);
  twins.file().wait(twins.streamed().write_master(2, 1021, 1121, other.data()));
  std::vector<float> expected = master;
  std::copy(other.begin(), other.end(), expected.begin() + 1021);
  EXPECT_EQ(twins.streamed_master(2), expected);
  EXPECT_EQ(twins.streamed_master(1), twins.master(1));
}

TEST(StreamedAdamW, ADiskThatFailsEndsIt) {
  const testing::TempFolder folder;
  bool full = false;
  BlockFileOptions failing;
  failing.at_start = [&](bool write, int64_t, int64_t) {
    return BlockFileFault{.error = full && write ? ENOSPC : 0};
  };
  Twins twins(folder.path(), Where::file, Where::memory, failing);
  twins.step(1);
  full = true;
  EXPECT_THROW(twins.step(2), StateError);
  full = false;
  EXPECT_THROW(twins.step(3), StateError) << "what the file holds is no state of any step";
  EXPECT_THROW(twins.streamed_master(0), StateError);
}

TEST(StreamedAdamW, RefusesBadOptionsByName) {
  const testing::TempFolder folder;
  BlockFile file(folder.path(), 4096);
  const auto message = [&](const AdamWOptions& options, const StreamOptions& stream, int64_t at) {
    try {
      StreamedAdamW updater(file, at, options, {}, stream);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(message({}, {}, 0), "accepted");
  EXPECT_NE(message({.beta1 = 1}, {}, 0).find("beta1 is 1"), std::string::npos);
  EXPECT_NE(message({}, {1000, 3}, 0).find("block_elements is 1000"), std::string::npos);
  EXPECT_NE(message({}, {0, 3}, 0).find("block_elements is 0"), std::string::npos);
  EXPECT_NE(message({}, {1024, 2}, 0).find("blocks is 2"), std::string::npos);
  EXPECT_NE(message({}, {}, 100).find("moments_at is 100"), std::string::npos);
}

TEST(StreamedAdamW, ABadRateChangesNothing) {
  const testing::TempFolder folder;
  Twins twins(folder.path(), Where::memory, Where::memory);
  EXPECT_THROW(twins.streamed().step(-1, 1), UsageError);
  EXPECT_EQ(twins.streamed().steps_taken(), 0);
  EXPECT_EQ(twins.file().bytes_written(), 0);
  twins.expect_equal();
}

}  // namespace
}  // namespace lockstep::optim
