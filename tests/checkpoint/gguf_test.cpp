// Export to llama.cpp's files. That llama.cpp computes the same of them is seen in
// tests/gguf/gguf_probabilities.sh.

#include "lockstep/checkpoint/gguf.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>

#include "lockstep/base/counter_random.h"
#include "lockstep/base/error.h"
#include "lockstep/base/half.h"
#include "lockstep/checkpoint/gguf_vocabulary.h"
#include "lockstep/checkpoint/tensor_table.h"
#include "lockstep/files/gguf_file.h"
#include "lockstep/files/temp_folder.h"
#include "lockstep/files/tokenizer.h"

namespace lockstep::checkpoints {
namespace {

/// Random weights in memory.
class RandomWeights : public Weights {
 public:
  explicit RandomWeights(WeightOrigin origin) : origin_(std::move(origin)) {
    list_ = logical_tensors(llama_table(origin_.config, origin_.vocab));
    for (const WeightInfo& info : list_) {
      auto& values = values_[info.name];
      const base::RandomKey key = base::RandomKey(5).with(info.name);
      for (int64_t i = 0; i < info.numel; ++i) {
        values.push_back(static_cast<float>(key.normal(static_cast<uint64_t>(i))));
      }
    }
  }
  const WeightOrigin& origin() const override { return origin_; }
  const std::vector<WeightInfo>& list() const override { return list_; }
  void read(const std::string& name, int64_t first, int64_t count, float* out) const override {
    std::copy_n(values_.at(name).begin() + first, count, out);
  }
  std::vector<float>& values(const std::string& name) { return values_.at(name); }

 private:
  WeightOrigin origin_;
  std::vector<WeightInfo> list_;
  std::map<std::string, std::vector<float>> values_;
};

WeightOrigin small_llama() {
  WeightOrigin origin;
  origin.path = "run/final.safetensors";
  auto& model = origin.config.model;
  model.family = "llama";
  model.layers = 2;
  model.heads = 4;
  model.kv_heads = 2;
  model.width = 24;
  model.ffn = 40;
  model.context = 16;
  model.tied = false;
  model.norm_eps = 1e-6;
  model.rope_theta = 5'000;
  origin.config.data.tokenizer = "bytes";
  origin.vocab = 256;
  return origin;
}

template <class Error_, class Action>
std::string message_of(const Action& action) {
  try {
    action();
  } catch (const Error_& error) {
    return error.what();
  }
  return "";
}

class GgufExport : public ::testing::Test {
 protected:
  std::vector<float> floats(const files::GgufFile& file, const std::string& name) const {
    for (const auto& info : file.tensors()) {
      if (info.name != name) continue;
      EXPECT_EQ(info.dtype, "F32");
      std::vector<float> values(static_cast<size_t>(info.bytes / 4));
      file.read(name, values.data(), info.bytes);
      return values;
    }
    ADD_FAILURE() << "no tensor " << name;
    return {};
  }

  files::TempFolder folder_{"gguf-export"};
  std::string path_ = folder_.file("model.gguf");
};

TEST_F(GgufExport, NamesShapesAndSettings) {
  export_gguf(RandomWeights(small_llama()), path_, "F32");
  const auto file = files::GgufFile::open(path_);
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& info : file.tensors()) shapes[info.name] = info.shape;
  std::map<std::string, std::vector<int64_t>> expected = {
      {"token_embd.weight", {256, 24}}, {"output_norm.weight", {24}}, {"output.weight", {256, 24}}};
  for (const std::string block : {"blk.0.", "blk.1."}) {
    expected[block + "attn_norm.weight"] = {24};
    expected[block + "attn_q.weight"] = {24, 24};
    expected[block + "attn_k.weight"] = {12, 24};
    expected[block + "attn_v.weight"] = {12, 24};
    expected[block + "attn_output.weight"] = {24, 24};
    expected[block + "ffn_norm.weight"] = {24};
    expected[block + "ffn_gate.weight"] = {40, 24};
    expected[block + "ffn_up.weight"] = {40, 24};
    expected[block + "ffn_down.weight"] = {24, 40};
  }
  EXPECT_EQ(shapes, expected);
  const auto number = [&](const char* key) { return std::get<uint32_t>(*file.find(key)); };
  EXPECT_EQ(std::get<std::string>(*file.find("general.architecture")), "llama");
  EXPECT_EQ(number("llama.context_length"), 16U);
  EXPECT_EQ(number("llama.embedding_length"), 24U);
  EXPECT_EQ(number("llama.block_count"), 2U);
  EXPECT_EQ(number("llama.feed_forward_length"), 40U);
  EXPECT_EQ(number("llama.attention.head_count"), 4U);
  EXPECT_EQ(number("llama.attention.head_count_kv"), 2U);
  EXPECT_EQ(number("llama.rope.dimension_count"), 6U);
  EXPECT_EQ(number("llama.vocab_size"), 256U);
  EXPECT_EQ(std::get<float>(*file.find("llama.attention.layer_norm_rms_epsilon")), 1e-6f);
  EXPECT_EQ(std::get<float>(*file.find("llama.rope.freq_base")), 5'000.0f);
}

/// Rows i and i + K/2 of a head of queries or keys become neighbours; all else stays as it is.
TEST_F(GgufExport, RowsOfQueriesAndKeysAreInPairs) {
  RandomWeights weights(small_llama());
  auto& fused = weights.values("h.1.attn.c_attn.weight");
  for (size_t i = 0; i < fused.size(); ++i) fused[i] = static_cast<float>(i / 24);  // the row
  export_gguf(weights, path_, "F32");
  const auto file = files::GgufFile::open(path_);
  const auto rows = [&](const std::string& name) {
    std::vector<int> first;
    const auto values = floats(file, name);
    for (size_t i = 0; i < values.size(); i += 24) {
      EXPECT_EQ(std::count(values.begin() + static_cast<int64_t>(i),
                           values.begin() + static_cast<int64_t>(i) + 24, values[i]),
                24);
      first.push_back(static_cast<int>(values[i]));
    }
    return first;
  };
  EXPECT_EQ(rows("blk.1.attn_q.weight"),
            (std::vector<int>{0,  3,  1,  4,  2,  5,  6,  9,  7,  10, 8,  11,
                              12, 15, 13, 16, 14, 17, 18, 21, 19, 22, 20, 23}));
  EXPECT_EQ(rows("blk.1.attn_k.weight"),
            (std::vector<int>{24, 27, 25, 28, 26, 29, 30, 33, 31, 34, 32, 35}));
  std::vector<int> values(12);
  std::iota(values.begin(), values.end(), 36);
  EXPECT_EQ(rows("blk.1.attn_v.weight"), values);
  const auto& gate_up = weights.values("h.0.mlp.gate_up.weight");
  EXPECT_EQ(floats(file, "blk.0.ffn_gate.weight"),
            std::vector<float>(gate_up.begin(), gate_up.begin() + 40 * 24));
  EXPECT_EQ(floats(file, "blk.0.ffn_up.weight"),
            std::vector<float>(gate_up.begin() + 40 * 24, gate_up.end()));
  EXPECT_EQ(floats(file, "output_norm.weight"), weights.values("ln_f.weight"));
}

TEST_F(GgufExport, HalvesAreRoundedAndNormsStayWide) {
  RandomWeights weights(small_llama());
  export_gguf(weights, path_, "F16");
  const auto file = files::GgufFile::open(path_);
  EXPECT_EQ(std::get<uint32_t>(*file.find("general.file_type")), 1U);
  EXPECT_EQ(floats(file, "blk.0.attn_norm.weight"), weights.values("h.0.ln_1.weight"));
  std::vector<uint16_t> halves(256 * 24);
  file.read("output.weight", halves.data(), std::ssize(halves) * 2);
  const auto& head = weights.values("lm_head.weight");
  for (size_t i = 0; i < halves.size(); ++i) {
    base::Float16 rounded;
    base::narrow(head[i], rounded);
    ASSERT_EQ(halves[i], rounded.bits) << i;
  }
  weights.values("lm_head.weight")[7] = 65'520;
  EXPECT_NE(message_of<UsageError>([&] {
              export_gguf(weights, path_, "F16");
            }).find("lm_head.weight holds 65520"),
            std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(path_)) << "the old file stays";
}

TEST_F(GgufExport, ATiedHeadIsNotWritten) {
  WeightOrigin origin = small_llama();
  origin.config.model.tied = true;
  export_gguf(RandomWeights(origin), path_, "F32");
  const auto file = files::GgufFile::open(path_);
  EXPECT_TRUE(std::none_of(file.tensors().begin(), file.tensors().end(),
                           [](const auto& info) { return info.name == "output.weight"; }));
}

TEST_F(GgufExport, WhatHasNoLikeInLlamaCppIsRefused) {
  const auto refusal = [&](const std::function<void(WeightOrigin&)>& change,
                           const std::string& dtype = "F32") {
    WeightOrigin origin = small_llama();
    change(origin);
    return message_of<UsageError>([&] { export_gguf(RandomWeights(origin), path_, dtype); });
  };
  EXPECT_NE(refusal([](auto& origin) {
              origin.config.model.family = "gpt2";
            }).find("Hugging Face folder"),
            std::string::npos);
  EXPECT_NE(refusal([](auto& origin) { origin.config.data.tokenizer = "cl100k"; }).find("cl100k"),
            std::string::npos);
  EXPECT_NE(refusal([](auto& origin) { origin.knows_tokenizer = false; }).find("does not say"),
            std::string::npos);
  EXPECT_NE(refusal([](auto& origin) { origin.vocab = 255; }).find("255 ids"), std::string::npos);
  EXPECT_NE(refusal([](auto&) {}, "BF16").find("BF16"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

const std::vector<std::string>& texts(const files::GgufKeys& keys, const std::string& name) {
  const auto found = std::find_if(keys.begin(), keys.end(), [&](const auto& key) {
    return key.first == "tokenizer.ggml." + name;
  });
  return std::get<std::vector<std::string>>(found->second);
}

TEST(GgufVocabulary, BytesAreTheLettersOfGpt2) {
  const auto keys = gguf_vocabulary("bytes", 260, "nowhere");
  const auto& tokens = texts(keys, "tokens");
  ASSERT_EQ(tokens.size(), 260U);
  EXPECT_EQ(tokens[0], "\u0100");
  EXPECT_EQ(tokens['\n'], "\u010a");
  EXPECT_EQ(tokens[' '], "\u0120");
  EXPECT_EQ(tokens['A'], "A");
  EXPECT_EQ(tokens[0xad], "\u0143");
  EXPECT_EQ(tokens[0xff], "\u00ff");
  EXPECT_EQ(tokens[256], "<unused_256>");
  EXPECT_TRUE(texts(keys, "merges").empty());
}

/// The merges made from ids are those of the published file, in its order.
TEST(GgufVocabulary, MergesAreThePublishedOnes) {
  const std::string folder = files::kTokenizerFolder;
  std::ifstream file(folder + "/vocab.bpe");
  if (!file) GTEST_SKIP() << "no vocabulary in " << folder;
  const auto keys = gguf_vocabulary("r50k", 50'304, folder);
  std::string line;
  std::getline(file, line);
  std::vector<std::string> published;
  while (std::getline(file, line)) {
    if (!line.empty()) published.push_back(line);
  }
  EXPECT_EQ(texts(keys, "merges"), published);
  EXPECT_EQ(texts(keys, "tokens").at(31'373), "hello");
  EXPECT_EQ(texts(keys, "tokens").at(50'256), "<|endoftext|>");
  EXPECT_EQ(texts(keys, "tokens").at(50'303), "<unused_50303>");
}

}  // namespace
}  // namespace lockstep::checkpoints
