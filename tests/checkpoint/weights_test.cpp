#include "lockstep/checkpoint/weights.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/hugging_face.h"
#include "lockstep/checkpoint/model_file.h"
#include "lockstep/files/safetensors.h"
#include "tests/checkpoint/made_weights.h"
#include "tests/files/on_disk.h"
#include "tests/support/temp_folder.h"

namespace lockstep::checkpoints {
namespace {

using lockstep::testing::TempFolder;
using testing::gpt2;
using testing::llama;
using testing::made_value;
using testing::MadeWeights;

std::string refusal_of(const std::string& path, const OpenOptions& options = {}) {
  try {
    open_weights(path, options);
  } catch (const StateError& error) {
    return error.what();
  }
  return "";
}

TEST(Weights, AModelFileIsWhatWasWritten) {
  const TempFolder folder;
  const std::string path = folder.file("final.safetensors");
  const MadeWeights made(llama(), 13);
  write_model_file(path, made);
  for (const std::string& at : {path, folder.path()}) {
    const auto read = open_weights(at);
    EXPECT_EQ(digest_of(*read).text(), digest_of(made).text());
    EXPECT_EQ(read->origin().param_digest, digest_of(made).text());
    EXPECT_EQ(plan::to_json(read->origin().config), plan::to_json(llama()));
    EXPECT_TRUE(read->origin().knows_tokenizer);
  }
  const auto read = open_weights(path);
  EXPECT_THROW(read->info("h.0.attn.c_attn"), StateError);
  EXPECT_FALSE(read->has("wpe.weight"));
}

/// Whoever passes weights on asks first: a new file would state the digest of the damage.
TEST(Weights, DamageIsNotPassedOn) {
  const TempFolder folder;
  const std::string path = folder.file("final.safetensors");
  write_model_file(path, MadeWeights(gpt2(), 11));
  prove(*open_weights(path));
  std::string bytes = on_disk::get(path);
  bytes[bytes.size() - 2] ^= 1;
  on_disk::put(path, bytes);
  try {
    prove(*open_weights(path));
    ADD_FAILURE() << "it was taken";
  } catch (const StateError& error) {
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
  }
}

TEST(Weights, AGgufFileIsNamed) {
  const TempFolder folder;
  on_disk::put(folder.file("m.gguf"), "GGUF" + std::string(100, '\1'));
  EXPECT_NE(refusal_of(folder.file("m.gguf")).find("it is a GGUF file"), std::string::npos);
}

TEST(Weights, WhatCouldRunCodeIsRefusedWithAWayOut) {
  const TempFolder folder;
  const std::string zip = std::string("PK\x03\x04", 4) + std::string(100, 'x');
  on_disk::put(folder.file("ckpt.pt"), zip);
  const std::string message = refusal_of(folder.file("ckpt.pt"));
  EXPECT_NE(message.find("Reading one can run code"), std::string::npos);
  EXPECT_NE(message.find("save_file("), std::string::npos);
  EXPECT_NE(message.find(folder.file("ckpt.pt")), std::string::npos);

  write_hugging_face(MadeWeights(gpt2(), 11), folder.file("hf"));
  std::filesystem::remove(folder.file("hf/model.safetensors"));
  EXPECT_NE(refusal_of(folder.file("hf")).find("neither model.safetensors nor"), std::string::npos);
  on_disk::put(folder.file("hf/pytorch_model.bin"), zip);
  EXPECT_NE(refusal_of(folder.file("hf")).find("pytorch_model.bin: it is a zip"),
            std::string::npos);
}

TEST(Weights, WhatIsNoModelIsSaid) {
  const TempFolder folder;
  EXPECT_NE(refusal_of(folder.path()).find("holds no model"), std::string::npos);
  EXPECT_NE(refusal_of(folder.file("none")).find("there is no run"), std::string::npos);
  on_disk::put(folder.file("text.safetensors"), "hello");
  EXPECT_NE(refusal_of(folder.file("text.safetensors")).find("text.safetensors"),
            std::string::npos);
  const float x = 1;
  files::write_safetensors(folder.file("other.safetensors"),
                           {{.name = "x", .dtype = "F32", .shape = {1}, .data = &x, .bytes = 4}},
                           {});
  EXPECT_NE(refusal_of(folder.file("other.safetensors")).find("no model that Lockstep knows"),
            std::string::npos);
}

TEST(Weights, AnotherModelIsRefusedByTheFirstSettingThatDiffers) {
  const MadeWeights weights(llama(), 13);
  const auto refusal = [&](const std::string& key, const std::string& value, int64_t vocab = 13) {
    plan::TrainConfig config = llama();
    if (!key.empty()) plan::set_key(config, key, value);
    try {
      require_same_model(weights, config, vocab);
    } catch (const StateError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::pair<const char*, const char*> differing[] = {
      {"model.family", "gpt2"}, {"model.layers", "3"},     {"model.width", "32"},
      {"model.heads", "2"},     {"model.tied", "true"},    {"model.norm_eps", "1e-5"},
      {"model.kv_heads", "4"},  {"model.rope_theta", "1"}, {"model.ffn", "12"}};
  for (const auto& [key, value] : differing) {
    const std::string message = refusal(key, value);
    EXPECT_NE(message.find(key), std::string::npos) << message;
    EXPECT_NE(message.find(base::str("but ", plan::get_key(
                                                 [&] {
                                                   plan::TrainConfig config = llama();
                                                   plan::set_key(config, key, value);
                                                   return config;
                                                 }(),
                                                 key))),
              std::string::npos)
        << message;
  }
  EXPECT_NE(refusal("", "", 14).find("the vocabulary is 13 there, but 14"), std::string::npos);
  // A llama is trained on sequences of any length, and with any dropout.
  EXPECT_EQ(refusal("model.context", "3"), "");
  EXPECT_EQ(refusal("model.dropout", "0.5"), "");
  plan::TrainConfig shorter = gpt2();
  shorter.model.context = 4;
  EXPECT_THROW(require_same_model(MadeWeights(gpt2(), 11), shorter, 11), StateError);
}

TEST(Weights, SettingsComeFromThem) {
  plan::TrainConfig config;
  config.data.tokenizer = "cl100k";
  take_model_settings(MadeWeights(gpt2(), 11), config);
  EXPECT_EQ(config.model.layers, 2);
  EXPECT_EQ(config.model.vocab, 11);
  EXPECT_EQ(config.data.tokenizer, "bytes");
  plan::TrainConfig bytes = gpt2();
  bytes.model.vocab = 0;
  take_model_settings(MadeWeights(bytes, 256), config);
  EXPECT_EQ(config.model.vocab, 0);
}

/// nanoGPT's names, linear weights (out, in).
struct NanoGpt {
  explicit NanoGpt(const std::string& prefix, bool bias,
                   std::map<std::string, std::string> metadata) {
    plan::TrainConfig config = gpt2();
    config.model.bias = bias;
    const MadeWeights made(config, 11);
    std::vector<std::vector<float>> values;
    std::vector<files::TensorEntry> entries;
    for (const WeightInfo& tensor : made.list())
      values.push_back(testing::all_of(made, tensor.name));
    for (size_t i = 0; i < values.size(); ++i) {
      const WeightInfo& tensor = made.list()[i];
      entries.push_back({.name = prefix + tensor.name,
                         .dtype = "F32",
                         .shape = tensor.shape,
                         .data = values[i].data(),
                         .bytes = tensor.numel * 4});
      if (tensor.name != "wte.weight") continue;
      entries.push_back(entries.back());
      entries.back().name = prefix.substr(0, prefix.find("transformer.")) + "lm_head.weight";
    }
    digest = digest_of(made).text();
    files::write_safetensors(path, entries, metadata);
  }
  TempFolder folder;
  std::string path = folder.file("nano.safetensors");
  std::string digest;
};

TEST(Weights, NanoGptsFiles) {
  for (const bool bias : {true, false}) {
    for (const std::string prefix : {"transformer.", "_orig_mod.transformer."}) {
      const NanoGpt file(prefix, bias, {{"n_head", "2"}});
      const auto weights = open_weights(file.path);
      EXPECT_EQ(digest_of(*weights).text(), file.digest);
      EXPECT_EQ(weights->origin().config.model.bias, bias);
      EXPECT_EQ(weights->origin().config.model.heads, 2);
      EXPECT_EQ(weights->origin().config.model.layers, 2);
    }
  }
  const NanoGpt silent("transformer.", true, {});
  EXPECT_NE(refusal_of(silent.path).find("--heads N"), std::string::npos);
  EXPECT_EQ(open_weights(silent.path, {.heads = 3})->origin().config.model.heads, 3);
  EXPECT_NE(refusal_of(silent.path, {.heads = 4}).find("4 heads do not divide a width of 6"),
            std::string::npos);
  const NanoGpt said("transformer.", true, {{"n_head", "2"}});
  EXPECT_NE(refusal_of(said.path, {.heads = 3}).find("say 2 heads, but 3"), std::string::npos);
  const NanoGpt wrong("transformer.", true, {{"n_head", "2x"}});
  EXPECT_NE(refusal_of(wrong.path).find("n_head \"2x\""), std::string::npos);
}

/// A Hugging Face file alone lies (in, out), which only c_attn shows.
TEST(Weights, AFileOfHuggingFaceNeedsItsFolder) {
  const TempFolder folder;
  write_hugging_face(MadeWeights(gpt2(), 11), folder.file("hf"));
  EXPECT_NE(refusal_of(folder.file("hf/model.safetensors"), {.heads = 2}).find("config.json"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::checkpoints
