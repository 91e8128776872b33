// BAD-2, CKPT-1, CKPT-8: a model file that is damaged, cut, or another kind of file, and one that
// is written where it is read from.

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "lockstep/base/counter_random.h"
#include "lockstep/base/error.h"
#include "lockstep/base/units.h"
#include "lockstep/checkpoint/model_file.h"
#include "lockstep/checkpoint/tensor_table.h"
#include "tests/files/on_disk.h"
#include "tests/support/resident_memory.h"
#include "tests/support/temp_folder.h"

namespace lockstep::checkpoints {
namespace {

using on_disk::message_of;

plan::TrainConfig tiny_llama() {
  plan::TrainConfig config;
  config.model.family = "llama";
  config.model.layers = 1;
  config.model.heads = 2;
  config.model.width = 8;
  config.model.ffn = 8;
  config.model.context = 8;
  return config;
}

class Drawn final : public Weights {
 public:
  Drawn() {
    origin_.config = tiny_llama();
    origin_.vocab = 16;
    origin_.identity = "B16 b4 G4 M1 T1 fp32 aten-1.13 avx2 1t";
    origin_.step = 7;
    list_ = logical_tensors(llama_table(origin_.config, origin_.vocab));
  }
  const WeightOrigin& origin() const override { return origin_; }
  const std::vector<WeightInfo>& list() const override { return list_; }
  void read(const std::string& name, int64_t first, int64_t count, float* out) const override {
    const base::RandomKey key = base::RandomKey(3).with(name);
    for (int64_t i = 0; i < count; ++i) {
      out[i] = static_cast<float>(key.normal(static_cast<uint64_t>(first + i)));
    }
  }

 private:
  WeightOrigin origin_;
  std::vector<WeightInfo> list_;
};

/// All that a file gives: what it says of the model, and every tensor.
struct Loaded {
  std::string settings;
  std::map<std::string, std::pair<std::vector<int64_t>, std::vector<float>>> tensors;
  bool operator==(const Loaded&) const = default;
};

/// As train/model_file.h does: opened, and the values held against the digest that the file states.
Loaded load(const std::string& path) {
  const auto weights = open_model_file(files::SafetensorsFile::open(path));
  const WeightOrigin& origin = weights->origin();
  if (digest_of(*weights).text() != origin.param_digest) {
    throw StateError(path + " is damaged");
  }
  Loaded loaded;
  loaded.settings = plan::to_json(origin.config).dump() + " " + std::to_string(origin.vocab) + " " +
                    std::to_string(origin.step) + " " + origin.identity;
  for (const WeightInfo& info : weights->list()) {
    auto& [shape, values] = loaded.tensors[info.name];
    shape = info.shape;
    values.resize(static_cast<size_t>(info.numel));
    weights->read(info.name, 0, info.numel, values.data());
  }
  return loaded;
}

class ModelFileDamage : public ::testing::Test {
 protected:
  ModelFileDamage() {
    write_model_file(path_, Drawn());
    whole_ = on_disk::get(path_);
    loaded_ = load(path_);
    uint64_t length = 0;
    std::memcpy(&length, whole_.data(), 8);
    data_begin_ = 8 + length;
  }

  void change(size_t at, char byte) const {  // in place: quick on any file system
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(at)).put(byte).flush();
  }

  testing::TempFolder folder_;
  std::string path_ = folder_.file("final.safetensors");
  std::string whole_;
  Loaded loaded_;
  size_t data_begin_ = 0;
};

TEST_F(ModelFileDamage, BAD_2_CutAtEveryByteIsRefused) {
  ASSERT_GT(whole_.size(), 5'000U);
  for (size_t length = whole_.size(); length-- > 0;) {
    std::filesystem::resize_file(path_, length);
    const std::string message = message_of<StateError>([&] { load(path_); });
    ASSERT_NE(message.find(path_), std::string::npos) << length << ": " << message;
  }
}

/// A flip in the data is refused; one in the header too, unless it changes nothing that is loaded:
/// spaces, or metadata that are none of ours.
TEST_F(ModelFileDamage, BAD_2_TenThousandFlippedBits) {
  const base::RandomKey key(17);
  int in_data = 0, in_header = 0, harmless = 0;
  for (uint64_t i = 0; i < 10'000; ++i) {
    // Half of them in the header, a tenth of the file.
    const bool header = key.below(3 * i, 2) == 0;
    const size_t at = header ? key.below(3 * i + 1, data_begin_)
                             : data_begin_ + key.below(3 * i + 1, whole_.size() - data_begin_);
    const char flipped = static_cast<char>(whole_[at] ^ (1 << key.below(3 * i + 2, 8)));
    change(at, flipped);
    (header ? in_header : in_data)++;
    try {
      const Loaded loaded = load(path_);
      ASSERT_TRUE(header) << "byte " << at << " of the data";
      ASSERT_TRUE(loaded == loaded_) << "byte " << at << ", now " << flipped << ": "
                                     << whole_.substr(at < 40 ? 0 : at - 40, 80);
      ++harmless;
    } catch (const StateError& error) {
      ASSERT_NE(std::string(error.what()).find(path_), std::string::npos) << error.what();
    }
    change(at, whole_[at]);
  }
  EXPECT_GT(in_data, 4'500);
  EXPECT_GT(in_header, 4'500);
  EXPECT_LT(harmless, in_header / 20) << "what is harmless is a few letters";
}

TEST_F(ModelFileDamage, BAD_2_AnotherMagicIsRefused) {
  for (const std::string& start :
       {std::string("GGUF"), std::string("PK\x03\x04"), std::string("\x80\x02}"),
        std::string("\x1f\x8b\x08"), std::string(8, '\0'), std::string(8, '\xff')}) {
    on_disk::put(path_, start + whole_.substr(start.size()));
    EXPECT_NE(message_of<StateError>([&] { load(path_); }).find(path_), std::string::npos) << start;
  }
}

/// Written to the file that its values are read from: no value is lost, and who has the old one
/// open reads it on.
TEST_F(ModelFileDamage, CKPT_1_WrittenWhereItIsReadFrom) {
  const auto old = open_model_file(files::SafetensorsFile::open(path_));
  write_model_file(path_, *old);
  EXPECT_EQ(on_disk::get(path_), whole_);
  EXPECT_TRUE(load(path_) == loaded_);
  write_model_file(path_, *old);  // from the file that is no longer there under this name
  EXPECT_EQ(on_disk::get(path_), whole_);
  EXPECT_EQ(on_disk::files_in(folder_.path()), 1);
}

/// A zip of a MiB that would grow to gigabytes, a pickle that would leave a file behind.
TEST_F(ModelFileDamage, CKPT_8_NothingIsUnpackedOrRun) {
  const std::string canary = folder_.file("canary");
  const std::string pickle =
      "\x80\x02"
      "cposix\nsystem\nX" +
      std::string("\x10\0\0\0", 4) + "touch " + canary + "q\x01\x85R.";
  const std::string bomb = std::string("PK\x03\x04", 4) + std::string(MiB, '\0');
  for (const auto& bytes : {pickle, bomb, std::string("PK\x03\x04", 4) + pickle}) {
    on_disk::put(path_, bytes);
    std::string message;
    const int64_t peak = testing::peak_bytes_of(
        [&] { message = message_of<StateError>([&] { open_weights(path_); }); });
    EXPECT_NE(message.find(path_), std::string::npos) << message;
    EXPECT_LT(peak, 4 * MiB);
  }
  EXPECT_FALSE(std::filesystem::exists(canary));
}

}  // namespace
}  // namespace lockstep::checkpoints
