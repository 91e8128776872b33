// What is not the checkpoint that was saved is refused, with the name of the file: before a value
// of it is used.

#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/reader.h"
#include "lockstep/files/sha256.h"
#include "tests/checkpoint/saved.h"
#include "tests/files/on_disk.h"
#include "tests/support/temp_folder.h"

namespace lockstep::checkpoints {
namespace {

namespace fs = std::filesystem;
using checkpoints::testing::deal;
using checkpoints::testing::in_grains;
using checkpoints::testing::save;
using checkpoints::testing::whole;
using on_disk::message_of;

/// Small, so that every byte can be tried: two kinds, grains with padding, columns, running values.
void save_small(const std::string& target, int64_t step = 20, float more = 0) {
  std::vector<SavedTensor> tensors = {whole(kRunning, "mean", {3})};
  for (const char* kind : {kParam, "exp_avg"}) {
    tensors.push_back(in_grains(kind, "wte", {13, 2}, 0, {16}, 4));
    tensors.push_back(in_grains(kind, "c_proj", {3, 4}, 1, {4}, 2));
    tensors.push_back(whole(kind, "bias", {8}));
  }
  save(target, tensors, deal(tensors, 4, 6), 4, step, more);
}

class Damage : public ::testing::Test {
 protected:
  Damage() {
    save_small(folder_);
    for (const auto& entry : fs::directory_iterator(folder_)) {
      const std::string name = entry.path().filename().string();
      whole_[name] = on_disk::get(entry.path().string());
    }
  }

  std::string path_of(const std::string& name) const { return folder_ + "/" + name; }
  void put(const std::string& name, std::string_view bytes) { on_disk::put(path_of(name), bytes); }
  /// In place: a file that is cut and written anew waits for the disk, thousands of times.
  void put_byte(const std::string& name, size_t at, char byte) {
    std::fstream file(path_of(name), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(at)).put(byte);
  }
  void mend(const std::string& name) { put(name, whole_.at(name)); }

  /// What reading all of it says.
  std::string refusal() const {
    return message_of<StateError>([this] { Reader(folder_).verify(); });
  }
  void expect_refused(const std::string& file, const std::string& reason) {
    const std::string message = refusal();
    EXPECT_NE(message.find(path_of(file)), std::string::npos) << message;
    EXPECT_NE(message.find(reason), std::string::npos) << message;
  }

  lockstep::testing::TempFolder temporary_;
  std::string folder_ = temporary_.file("step_00000020");
  std::map<std::string, std::string> whole_;  // by name
};

TEST_F(Damage, NothingIsWrongWithAWholeOne) {
  EXPECT_EQ(whole_.size(), 6u);  // manifest, index, 4 parts
  EXPECT_EQ(refusal(), "");
}

/// Any byte of any file, changed in any way.
TEST_F(Damage, TenThousandChangedBytesAreSeen) {
  std::vector<std::pair<std::string, size_t>> all;
  for (const auto& [name, bytes] : whole_) {
    for (size_t at = 0; at < bytes.size(); ++at) all.emplace_back(name, at);
  }
  const base::RandomKey key(2024);
  for (uint64_t flip = 0; flip < 10'000; ++flip) {
    const auto& [name, at] = all[key.below(2 * flip, all.size())];
    const char byte = whole_.at(name)[at];
    put_byte(name, at,
             static_cast<char>(byte ^ static_cast<char>(1 + key.below(2 * flip + 1, 255))));
    const std::string message = refusal();
    ASSERT_NE(message.find(path_of(name)), std::string::npos)
        << name << ", byte " << at << ": " << message;
    put_byte(name, at, byte);
  }
  EXPECT_EQ(refusal(), "");
}

TEST_F(Damage, AFileCutAnywhereIsSeen) {
  for (const auto& [name, bytes] : whole_) {
    for (size_t length = bytes.size(); length-- > 0;) {
      fs::resize_file(path_of(name), length);
      const std::string message = refusal();
      ASSERT_NE(message.find(path_of(name)), std::string::npos)
          << name << ", " << length << " bytes: " << message;
      if (name.starts_with("part_")) {
        ASSERT_NE(message.find("the manifest says"), std::string::npos) << message;
      }
    }
    put(name, bytes + '\0');
    EXPECT_NE(refusal().find(path_of(name)), std::string::npos) << name << ", one byte more";
    mend(name);
  }
}

TEST_F(Damage, AMissingFileIsSeen) {
  for (const auto& [name, bytes] : whole_) {
    fs::remove(path_of(name));
    expect_refused(name, "No such file");
    mend(name);
  }
}

TEST_F(Damage, SwappedPartsAreSeen) {
  put("part_0001.safetensors", whole_.at("part_0002.safetensors"));
  put("part_0002.safetensors", whole_.at("part_0001.safetensors"));
  expect_refused("part_0001.safetensors", "the manifest says");
}

/// Two parts whose slices are called alike cannot be: names say which elements they are. Two whose
/// headers and sizes are the same are of two steps.
TEST_F(Damage, APartOfAnotherStepIsSeen) {
  const std::string other = temporary_.file("step_00000030");
  save_small(other, 30, /*more=*/1);
  for (const char* name : {"part_0003.safetensors", kIndexFile, kManifestFile}) {
    const std::string theirs = on_disk::get(other + "/" + name);
    EXPECT_EQ(theirs.size() == whole_.at(name).size() || name == kManifestFile, true);
    put(name, theirs);
    if (theirs == whole_.at(name)) continue;  // the index: it says no more than where things lie
    const bool is_manifest = std::string(name) == kManifestFile;
    expect_refused(name, is_manifest ? "its folder is named as of 20" : "the manifest says");
    mend(name);
  }
}

/// A manifest without digests, or with them taken out of use, is none.
TEST_F(Damage, DigestsCannotBeLeftOut) {
  const auto with = [this](const std::function<void(nlohmann::json&)>& change, bool sealed) {
    auto json = nlohmann::json::parse(whole_.at(kManifestFile));
    json.erase("sha256");
    change(json);
    if (sealed) json["sha256"] = files::sha256_hex(json.dump());
    put(kManifestFile, json.dump(1, ' ', true) + '\n');
  };
  with([](nlohmann::json&) {}, /*sealed=*/false);
  expect_refused(kManifestFile, "no whole JSON object of ours");
  for (const char* field : {"header_sha256", "values", "elements", "params", "bytes"}) {
    with([field](nlohmann::json& json) { json["files"][1].erase(field); }, /*sealed=*/true);
    expect_refused(kManifestFile, "a field is missing");
    with([field](nlohmann::json& json) { json["files"][1][field] = nullptr; }, /*sealed=*/true);
    expect_refused(kManifestFile, "");
  }
  with([](nlohmann::json& json) { json["index"].erase("sha256"); }, /*sealed=*/true);
  expect_refused(kManifestFile, "a field is missing");
  with([](nlohmann::json& json) { json.erase("files"); }, /*sealed=*/true);
  expect_refused(kManifestFile, "a field is missing");
  with([](nlohmann::json& json) { json["param_digest"] = plan::Digest{}.text(); }, true);
  EXPECT_NE(refusal().find("its parts are of a model with digest"), std::string::npos);
}

/// The pieces of which a run makes its choice: what is listed may be damaged, and reading it says
/// so; the next older one is there.
TEST_F(Damage, AnOlderCheckpointIsStillWhole) {
  const std::string run = temporary_.file("run");
  for (const int64_t step : {10, 20}) {
    save_small(checkpoints_of(run) + "/" + folder_name(step), step);
  }
  const std::vector<Found> found = complete_checkpoints(run);
  ASSERT_EQ(found.size(), 2u);
  fs::resize_file(found[0].folder + "/part_0003.safetensors", 100);
  EXPECT_EQ(checkpoint_at(run), found[0].folder);  // nobody passes it over unasked
  EXPECT_THROW(Reader(found[0].folder).verify(), StateError);
  EXPECT_NO_THROW(Reader(found[1].folder).verify());
  EXPECT_EQ(found[1].step, 10);
}

/// Values that change places, with all sums of bits as they were.
TEST_F(Damage, ExchangedValuesAreSeen) {
  const std::string name = "part_0000.safetensors";
  std::string bytes = whole_.at(name);
  std::swap_ranges(bytes.end() - 4, bytes.end(), bytes.end() - 8);
  ASSERT_NE(bytes, whole_.at(name));
  put(name, bytes);
  expect_refused(name, "its values have digest");
}

/// Formats that can carry code are told apart, and nothing of them is read as one.
TEST_F(Damage, FilesThatCanCarryCodeAreRefused) {
  const std::string canary = temporary_.file("canary");
  const std::string command = base::str("touch ", canary);
  // What Python's pickle would run: os.system(command).
  const std::string pickle =
      base::str("\x80\x02", "cposix\nsystem\n", "X",
                std::string{static_cast<char>(command.size()), 0, 0, 0}, command, "\x85R.");
  std::string zip = "PK\x03\x04" + std::string(26, '\0') + "archive/data.pkl" + pickle;
  // 1 MiB that says it grows to 10 GiB: a local header of a deflated entry.
  std::string bomb = std::string("PK\x03\x04\x14\x00\x00\x00\x08\x00", 10) + std::string(8, '\0') +
                     std::string("\x00\x00\x10\x00\xff\xff\xff\xff\x01\x00\x00\x00", 12) + "x";
  bomb.resize(1 << 20, '\0');
  for (const std::string& code : {pickle, zip, bomb}) {
    for (const char* name : {kManifestFile, kIndexFile, "part_0001.safetensors"}) {
      put(name, code);
      const std::string message = refusal();
      EXPECT_NE(message.find(path_of(name)), std::string::npos) << message;
      if (std::string(name) != "part_0001.safetensors") {
        EXPECT_NE(message.find("nothing in it was run"), std::string::npos) << message;
      }
      mend(name);
    }
    // The same bytes in the length that the manifest states.
    const std::string& part = whole_.at("part_0001.safetensors");
    std::string padded = code;
    padded.resize(part.size(), '\0');
    put("part_0001.safetensors", padded);
    expect_refused("part_0001.safetensors", "");
    mend("part_0001.safetensors");
  }
  EXPECT_FALSE(fs::exists(canary));
}

/// Lengths and counts that a file states never decide how much memory is asked for.
TEST_F(Damage, ALargeHeaderLengthIsNotBelieved) {
  std::string part = whole_.at("part_0001.safetensors");
  for (const uint64_t length : {uint64_t{99'999'999}, uint64_t{1} << 40, ~uint64_t{0}}) {
    std::copy_n(reinterpret_cast<const char*>(&length), 8, part.begin());
    put("part_0001.safetensors", part);
    expect_refused("part_0001.safetensors", "");
  }
}

}  // namespace
}  // namespace lockstep::checkpoints
