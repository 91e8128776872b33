// A damaged checkpoint on ranks: all of them say which file and why, and nothing of it is in the
// model.

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <vector>

#include "lockstep/base/counter_random.h"
#include "lockstep/base/str.h"
#include "lockstep/files/sha256.h"
#include "lockstep/train/checkpoint_load.h"
#include "lockstep/train/saved_values.h"
#include "tests/files/on_disk.h"
#include "tests/train/checkpoint_rig.h"
#include "tests/train/layouts.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using on_disk::get;
using on_disk::put;
using testing::Layout;
using testing::SavingRank;
using testing::SavingRun;

/// Everything that a checkpoint fills, as this rank has it.
std::vector<std::vector<float>> values_of(SavingRank& rank) {
  std::vector<std::vector<float>> values;
  for (const HeldRun& run : held_runs(rank.trainer->state(), rank.average.get(), rank.context)) {
    values.emplace_back(static_cast<size_t>(run.size()));
    run.read(run.lo, run.hi, values.back().data());
  }
  return values;
}

struct Damage {
  std::string name;
  std::string file;    // that every rank names
  std::string reason;  // part of what it says of it
  std::function<void()> make;
};

class DamagedRun : public SavingRun {
 public:
  DamagedRun() {
    config.model.context = 12;
    config.numerics.tensor_grains = 2;  // of a vocabulary of 67: with padding
    config.optim.ema = 0.5;
  }

  /// Two steps of 4 ranks with other values, and the files of the first.
  void save() {
    Layout{.data = 4, .shard = "zero2"}.set(config);
    on(4, [](SavingRank& rank) {
      rank.open({.async = false});
      rank.save(1);
      rank.train();
      rank.save(2);
    });
    for (const auto& entry : fs::directory_iterator(folder_of(1))) {
      const std::string name = entry.path().filename().string();
      whole_.emplace_back(name, get(entry.path().string()));
    }
    std::sort(whole_.begin(), whole_.end());
  }

  std::string folder_of(int64_t step) const {
    return checkpoints() + "/" + checkpoints::folder_name(step);
  }
  std::string path_of(const std::string& name) const { return folder_of(1) + "/" + name; }
  const std::vector<std::pair<std::string, std::string>>& whole() const { return whole_; }
  void mend() const {
    for (const auto& [name, bytes] : whole_) put(path_of(name), bytes);
  }

  void expect_refused(const Layout& layout, const std::vector<Damage>& damages) {
    layout.set(config);
    on(layout.ranks(), [&](SavingRank& rank) {
      rank.train();
      rank.train();  // other values than any that were saved
      const auto load = [&] {
        load_checkpoint(folder_of(1), rank.trainer->state(), rank.average.get(), rank.context);
      };
      const auto before = values_of(rank);
      const std::string digest = rank.trainer->state().digest();
      for (const Damage& damage : damages) {
        SCOPED_TRACE(damage.name);
        if (rank.rank() == 0) damage.make();
        rank.context.world->barrier();
        const std::string failure = SavingRank::failure_of(load);
        EXPECT_NE(failure.find(damage.file), std::string::npos) << rank.rank() << ": " << failure;
        EXPECT_NE(failure.find(damage.reason), std::string::npos) << rank.rank() << ": " << failure;
        EXPECT_EQ(rank.trainer->state().digest(), digest);
        EXPECT_TRUE(values_of(rank) == before) << "rank " << rank.rank();
        rank.context.world->barrier();
        if (rank.rank() == 0) mend();
        rank.context.world->barrier();
      }
      EXPECT_EQ(SavingRank::failure_of(load), "");
      EXPECT_NE(rank.trainer->state().digest(), digest);
      EXPECT_FALSE(values_of(rank) == before);
    });
  }

 private:
  std::vector<std::pair<std::string, std::string>> whole_;  // name and bytes
};

std::vector<Damage> six_kinds(const DamagedRun& run) {
  const std::string one = run.path_of("part_0001.safetensors");
  const std::string two = run.path_of("part_0002.safetensors");
  const std::string manifest = run.path_of(checkpoints::kManifestFile);
  return {
      {"a part is gone", one, "not whole without it", [=] { fs::remove(one); }},
      {"a byte is another one", one, "its values have digest",
       [=] {
         std::string bytes = get(one);
         bytes[bytes.size() - 5] ^= 0x10;
         put(one, bytes);
       }},
      {"the last byte is gone", one, "it was cut short",
       [=] { fs::resize_file(one, fs::file_size(one) - 1); }},
      {"two parts change places", one, "the manifest says",
       [=] {
         const std::string bytes = get(one);
         put(one, get(two));
         put(two, bytes);
       }},
      {"no digests", manifest, "a field is missing",
       [=] {
         auto json = nlohmann::json::parse(get(manifest));
         json.erase("sha256");
         for (auto& part : json["files"]) part.erase("values");
         json["sha256"] = files::sha256_hex(json.dump());
         put(manifest, json.dump(1, ' ', true) + '\n');
       }},
      {"a part of another step", two, "its values have digest",
       [=, other = run.folder_of(2) + "/part_0002.safetensors"] { put(two, get(other)); }},
  };
}

TEST(DamagedCheckpoint, CKPT_5_SixKindsAreRefusedByAllRanks) {
  DamagedRun run;
  run.save();
  for (const Layout layout :
       {Layout{.data = 3, .shard = "zero1"}, Layout{.data = 2, .pipeline = 2},
        Layout{.data = 2, .shard = "zero3", .tensor = 2}, Layout{.data = 1}}) {
    SCOPED_TRACE(::testing::PrintToString(layout));
    run.expect_refused(layout, six_kinds(run));
  }
}

TEST(DamagedCheckpoint, AnyChangedByteIsRefusedByAllRanks) {
  DamagedRun run;
  run.save();
  const base::RandomKey key(7);
  std::vector<Damage> damages;
  for (uint64_t flip = 0; flip < 60; ++flip) {
    const auto& [name, bytes] = run.whole()[flip % run.whole().size()];
    const size_t at = key.below(2 * flip, bytes.size());
    const auto change = static_cast<char>(1 + key.below(2 * flip + 1, 255));
    damages.push_back({base::str(name, ", byte ", at), run.path_of(name), "",
                       [path = run.path_of(name), bytes = bytes, at, change]() mutable {
                         bytes[at] = static_cast<char>(bytes[at] ^ change);
                         put(path, bytes);
                       }});
  }
  run.expect_refused({.data = 3, .shard = "zero2"}, damages);
}

}  // namespace
}  // namespace lockstep
