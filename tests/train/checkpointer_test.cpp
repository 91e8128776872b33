// Saving beside training: what is written, what it holds, and what a writer that fails takes along.

#include "lockstep/train/checkpointer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <stdexcept>

#include "lockstep/base/str.h"
#include "lockstep/plan/fitting.h"
#include "tests/train/checkpoint_rig.h"
#include "tests/train/layouts.h"

namespace lockstep {
namespace {

using testing::expect_whole;
using testing::Layout;
using testing::SavingRank;
using testing::SavingRun;

/// Who passes it waits until it is opened.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [this] { return open_; });
  }

 private:
  std::mutex mutex_;  // guards open_
  std::condition_variable opened_;
  bool open_ = false;
};

const std::vector<Layout>& saving_layouts() {
  static const std::vector<Layout> all = {{.data = 1},
                                          {.data = 2},
                                          {.data = 3},
                                          {.data = 4},
                                          {.data = 3, .shard = "zero1"},
                                          {.data = 4, .shard = "zero2"},
                                          {.data = 4, .shard = "zero3"},
                                          {.data = 2, .pipeline = 2}};
  return all;
}

/// Bytes that this process has passed to write calls.
int64_t bytes_written() {
  std::ifstream io("/proc/self/io");
  std::string name;
  int64_t value = 0;
  while (io >> name >> value) {
    if (name == "wchar:") return value;
  }
  ADD_FAILURE() << "/proc/self/io says nothing of wchar";
  return 0;
}

int64_t bytes_of_files(const std::string& folder) {
  int64_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    bytes += static_cast<int64_t>(file.file_size());
  }
  return bytes;
}

TEST(Checkpointer, EveryByteIsWrittenOnce) {
  for (const Layout& layout : saving_layouts()) {
    for (const bool async : {true, false}) {
      SCOPED_TRACE(::testing::PrintToString(layout) + (async ? " async" : " sync"));
      SavingRun run;
      layout.set(run.config);
      run.config.optim.ema = 0.5;
      std::atomic<int64_t> elements = 0;  // of the model
      std::atomic<int64_t> written = 0;
      run.on(layout.ranks(), [&](SavingRank& rank) {
        rank.open({.async = async});
        rank.context.world->barrier();
        if (rank.rank() == 0) written = -bytes_written();
        rank.context.world->barrier();
        rank.save(5);
        rank.saver->finish();
        if (rank.rank() == 0) written += bytes_written();
        if (rank.context.dp->rank() != 0) return;
        const ModelParts* const parts = rank.trainer->state().parts();
        const plan::ParamTable& table = rank.trainer->params().table();
        for (size_t p = 0; p < table.params.size(); ++p) {
          if (parts == nullptr || parts->counts[p]) elements += table.params[p].numel;
        }
      });
      const checkpoints::Reader reader(
          checkpoints::complete_checkpoints(run.folder()).at(0).folder);
      reader.verify();
      constexpr int64_t kKinds = 4;  // masters, two moments, the average
      EXPECT_EQ(reader.bytes_read(), 4 * kKinds * elements);
      EXPECT_EQ(written, bytes_of_files(reader.folder())) << "nothing twice, nothing beside it";
      if (layout.pipeline > 1) continue;  // stages differ
      std::vector<int64_t> shares;
      for (const auto& part : reader.manifest().files) shares.push_back(part.elements);
      const auto [least, most] = std::minmax_element(shares.begin(), shares.end());
      // Cuts lie between chunks of 256 elements; a unit of shards has its own.
      const int64_t units = std::string(layout.shard) == "zero3" ? 3 : 1;
      EXPECT_LE(*most - *least, kKinds * 2 * 256 * units);
    }
  }
}

/// Three witnesses: the form, the plan, the account.
TEST(Checkpointer, HoldsTheCopyOnly) {
  for (const Layout& layout : saving_layouts()) {
    SCOPED_TRACE(::testing::PrintToString(layout));
    SavingRun run;
    layout.set(run.config);
    run.config.optim.ema = 0.5;
    run.on(layout.ranks(), [&](SavingRank& rank) {
      const auto other = static_cast<size_t>(memory::Kind::other);
      const ModelState& state = rank.trainer->state();
      const int64_t planned = plan::checkpoint_bytes(
          run.config, state.inputs(), rank.context.dp->rank(),
          state.parts() != nullptr ? state.parts()->counts : std::vector<bool>{});
      rank.open({.async = false});
      const int64_t before = rank.account.current()[other];
      rank.save(1);
      EXPECT_EQ(rank.account.peak()[other], before) << "written from where it lies";
      rank.open({.async = true});
      rank.save(2);
      rank.saver->finish();
      rank.save(3);
      rank.saver->finish();
      EXPECT_EQ(rank.account.peak()[other] - before, planned);
      EXPECT_EQ(rank.saver->copy_bytes(), planned);
      rank.saver.reset();
      EXPECT_EQ(rank.account.current()[other], before);
      if (layout.pipeline > 1) return;
      int64_t elements = 0;
      for (const plan::Param& param : state.params().table().params) elements += param.numel;
      const int64_t form = 4 * (1 + 2 + 1) * elements / layout.ranks();
      EXPECT_LE(std::abs(planned - form), 4 * 4 * 2 * 256 * 3);
    });
    expect_whole(run.folder());
  }
}

/// What a run says of itself.
TEST(Checkpointer, ARunHoldsWhatIsPlanned) {
  for (const Layout& layout : saving_layouts()) {
    for (const int every : {0, 2}) {
      SCOPED_TRACE(::testing::PrintToString(layout));
      testing::LayoutRun run;
      run.config.checkpoint.every = every;
      const nlohmann::json summary = run.run_with(layout);
      for (const auto& rank : summary["ranks"]) {
        EXPECT_EQ(rank["peak_bytes"]["other"], rank["planned_peak_bytes"]["other"])
            << rank["rank"] << " every " << every;
        EXPECT_EQ(rank["planned_peak_bytes"]["other"].get<int64_t>() > 0, every > 0);
      }
    }
  }
}

/// Moments, and with zero3 masters too, lie in a file that each step reads and writes anew.
TEST(Checkpointer, OFF_1_SavesOffloadedStateAsThatInMemory) {
  for (const char* shard : {"none", "zero3"}) {
    for (const int ranks : {1, 2, 3}) {
      SCOPED_TRACE(base::str(shard, " on ", ranks));
      std::vector<checkpoints::Manifest> of_memory;
      for (const char* offload : {"none", "disk"}) {
        SavingRun run;
        run.config.parallel.shard = shard;
        run.config.memory.offload = offload;
        run.config.checkpoint.every = 1;
        run.config.checkpoint.keep = 100;
        for (const std::string& failure : run.train(ranks)) EXPECT_EQ(failure, "");
        expect_whole(run.folder());
        std::vector<checkpoints::Manifest> manifests;
        for (const auto& found : checkpoints::complete_checkpoints(run.folder())) {
          manifests.push_back(checkpoints::read_manifest(found.folder));
        }
        ASSERT_EQ(manifests.size(), 4u);
        if (of_memory.empty()) of_memory = manifests;
        for (size_t i = 0; i < manifests.size(); ++i) {
          EXPECT_EQ(manifests[i].param_digest, of_memory[i].param_digest);
          EXPECT_EQ(manifests[i].files, of_memory[i].files) << "step " << manifests[i].step;
        }
      }
    }
  }
}

/// What is saved is what was there when it was asked for, however long the writing takes.
TEST(Checkpointer, SavesTheStateOfItsStep) {
  SavingRun run;
  run.on(3, [&](SavingRank& rank) {
    Gate trained;
    rank.open({.async = true, .before_write = [&] { trained.wait(); }});
    const std::string before = rank.trainer->state().digest();
    rank.save(1);
    EXPECT_TRUE(rank.saver->pending());
    rank.train();
    EXPECT_NE(rank.trainer->state().digest(), before);
    trained.open();
    rank.saver->finish();
    EXPECT_FALSE(rank.saver->pending());
    EXPECT_EQ(checkpoints::read_manifest(rank.folder(1)).param_digest, before);
  });
  expect_whole(run.folder());
}

TEST(Checkpointer, OneSaveAtATime) {
  SavingRun run;
  run.on(2, [&](SavingRank& rank) {
    std::atomic<int> under_way = 0;
    std::atomic<int> most = 0;
    rank.open({.async = true,
               .completed = [&](const std::string&) { --under_way; },
               .before_write = [&] { most = std::max<int>(most, ++under_way); }});
    for (int64_t step = 1; step <= 5; ++step) rank.save(step);
    rank.saver->finish();
    EXPECT_EQ(rank.saver->times().saves, 5);
    // Only rank 0 is told what is complete.
    if (rank.rank() == 0) {
      EXPECT_EQ(most, 1);
    }
  });
  EXPECT_EQ(checkpoints::complete_checkpoints(run.folder()).size(), 5u);
  expect_whole(run.folder());
}

TEST(Checkpointer, AWriterThatDiesFailsItsSaveAndNoOther) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const bool async : {true, false}) {
      SCOPED_TRACE(base::str(ranks, " ranks, ", async ? "async" : "sync"));
      SavingRun run;
      run.on(ranks, [&](SavingRank& rank) {
        int writes = 0;
        rank.open({.async = async, .before_write = [&] {
                     const bool last = rank.rank() == rank.size() - 1;
                     if (++writes == 2 && last) throw std::runtime_error("the writer died");
                   }});
        EXPECT_EQ(rank.try_to_save(2), "");
        rank.train();
        const std::string before = rank.trainer->state().digest();
        const std::string failure = rank.try_to_save(4);
        EXPECT_EQ(failure, base::str("[rank ", ranks - 1, " of ", ranks,
                                     "] the checkpoint of step 4 was not saved: the writer died"));
        EXPECT_EQ(rank.trainer->state().digest(), before);
        EXPECT_FALSE(rank.saver->pending());
        rank.train();
        EXPECT_EQ(rank.try_to_save(6), "");
        EXPECT_EQ(rank.saver->times().saves, 2);
        EXPECT_EQ(checkpoints::read_manifest(rank.folder(6)).param_digest,
                  rank.trainer->state().digest());
      });
      const auto found = checkpoints::complete_checkpoints(run.folder());
      ASSERT_EQ(found.size(), 2u);
      EXPECT_EQ(found[1].step, 2);
      expect_whole(run.folder());
    }
  }
}

/// One that is given up comes back while the same step is saved anew, and changes nothing.
TEST(Checkpointer, AWriterThatHangsIsGivenUpInTime) {
  for (const int ranks : {1, 3}) {
    SCOPED_TRACE(base::str(ranks, " ranks"));
    SavingRun run;
    const auto gate = std::make_shared<Gate>();  // it outlives the rank, as a lost writer does
    run.on(ranks, [&](SavingRank& rank) {
      const bool last = rank.rank() == ranks - 1;
      const auto writes = std::make_shared<std::atomic<int>>(0);
      rank.open({.async = true, .timeout_s = 3, .before_write = [gate, writes, last] {
                   const int write = ++*writes;
                   if (last && write == 2) gate->wait();
                   if (last && write == 3) gate->open();
                 }});
      EXPECT_EQ(rank.try_to_save(2), "");
      const auto start = std::chrono::steady_clock::now();
      const std::string failure = rank.try_to_save(4);
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      EXPECT_NE(failure.find(base::str("[rank ", ranks - 1, " of ", ranks,
                                       "] the checkpoint of step 4 was not saved: its writer did "
                                       "not end within 3 s")),
                std::string::npos)
          << failure;
      EXPECT_LT(taken.count(), 3 + 2);
      rank.train();
      EXPECT_EQ(rank.try_to_save(4), "");
      EXPECT_EQ(rank.saver->times().saves, 2);
      EXPECT_EQ(checkpoints::read_manifest(rank.folder(4)).param_digest,
                rank.trainer->state().digest());
    });
    EXPECT_EQ(checkpoints::complete_checkpoints(run.folder()).size(), 2u);
    expect_whole(run.folder());
  }
}

/// A folder of one try is never that of another.
TEST(Checkpointer, EachTryHasAFolderOfItsOwn) {
  const testing::TempFolder run;
  const std::string target = run.path() + "/step_00000004";
  EXPECT_NE(checkpoints::begin_folder(target), checkpoints::begin_folder(target));
}

}  // namespace
}  // namespace lockstep
