#include "lockstep/checkpoint/hugging_face.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/half.h"
#include "lockstep/base/str.h"
#include "lockstep/files/safetensors.h"
#include "tests/checkpoint/made_weights.h"
#include "tests/files/on_disk.h"
#include "tests/support/temp_folder.h"

namespace lockstep::checkpoints {
namespace {

using lockstep::testing::TempFolder;
using testing::all_of;
using testing::gpt2;
using testing::llama;
using testing::made_value;
using testing::MadeWeights;
using Json = nlohmann::json;
using Shape = std::vector<int64_t>;

struct Exported {
  explicit Exported(const plan::TrainConfig& config, const HuggingFaceOptions& options = {})
      : weights(config, config.model.vocab), path(folder.file("model")) {
    notes = write_hugging_face(weights, path, options);
  }
  Json config() const { return Json::parse(on_disk::get(path + "/config.json")); }
  void change(const Json& patch) const {
    Json json = config();
    json.update(patch);
    on_disk::put(path + "/config.json", json.dump());
  }
  files::SafetensorsFile file() const {
    return files::SafetensorsFile::open(path + "/model.safetensors");
  }
  /// Writes the tensors again, changed by `edit`.
  void rewrite(const std::function<void(std::map<std::string, files::TensorEntry>&)>& edit) const {
    std::map<std::string, std::vector<char>> bytes;
    std::map<std::string, files::TensorEntry> entries;
    {
      const files::SafetensorsFile read = file();
      for (const std::string& name : read.names()) {
        const auto& info = read.info(name);
        bytes[name].resize(static_cast<size_t>(info.bytes));
        read.read(name, bytes[name].data(), info.bytes);
        entries[name] = {.name = name,
                         .dtype = info.dtype,
                         .shape = info.shape,
                         .data = bytes[name].data(),
                         .bytes = info.bytes};
      }
    }
    edit(entries);
    std::vector<files::TensorEntry> list;
    for (auto& [name, entry] : entries) {
      entry.name = name;
      list.push_back(entry);
    }
    files::write_safetensors(path + "/model.safetensors", list, {{"format", "pt"}});
  }
  std::string refusal() const {
    try {
      open_hugging_face(path);
    } catch (const StateError& error) {
      return error.what();
    }
    return "";
  }

  TempFolder folder;
  MadeWeights weights;
  std::string path;
  std::vector<std::string> notes;
};

void expect_same_model(const Weights& read, const Weights& written) {
  EXPECT_EQ(digest_of(read).text(), digest_of(written).text());
  EXPECT_EQ(read.origin().vocab, written.origin().vocab);
  plan::TrainConfig config = read.origin().config;
  config.model.options = written.origin().config.model.options;
  EXPECT_EQ(plan::to_json(config)["model"], plan::to_json(written.origin().config)["model"]);
}

TEST(HuggingFace, RoundTripHasTheSameBits) {
  plan::TrainConfig narrow = gpt2();
  narrow.model.ffn = 7;
  narrow.model.dropout = 0.25;
  for (const plan::TrainConfig& config :
       {gpt2(), gpt2(/*tied=*/false), narrow, llama(), llama(0), llama(1, /*tied=*/true)}) {
    const Exported out(config);
    const auto read = open_hugging_face(out.path);
    expect_same_model(*read, out.weights);
    EXPECT_NO_THROW(require_same_model(*read, config, config.model.vocab));
  }
}

TEST(HuggingFace, Gpt2HasTheFormatsNamesAndShapes) {
  const Exported out(gpt2());
  const files::SafetensorsFile file = out.file();
  const std::map<std::string, Shape> of_block = {{"ln_1.weight", {6}},
                                                 {"ln_1.bias", {6}},
                                                 {"attn.c_attn.weight", {6, 18}},
                                                 {"attn.c_attn.bias", {18}},
                                                 {"attn.c_proj.weight", {6, 6}},
                                                 {"attn.c_proj.bias", {6}},
                                                 {"ln_2.weight", {6}},
                                                 {"ln_2.bias", {6}},
                                                 {"mlp.c_fc.weight", {6, 24}},
                                                 {"mlp.c_fc.bias", {24}},
                                                 {"mlp.c_proj.weight", {24, 6}},
                                                 {"mlp.c_proj.bias", {6}}};
  std::map<std::string, Shape> expected = {{"transformer.wte.weight", {11, 6}},
                                           {"transformer.wpe.weight", {5, 6}},
                                           {"transformer.ln_f.weight", {6}},
                                           {"transformer.ln_f.bias", {6}}};
  for (const auto& [name, shape] : of_block) {
    expected["transformer.h.0." + name] = shape;
    expected["transformer.h.1." + name] = shape;
  }
  std::map<std::string, Shape> there;
  for (const std::string& name : file.names()) there[name] = file.info(name).shape;
  EXPECT_EQ(there, expected);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  // (in, out): theirs[d][j] is our row j, column d.
  std::vector<float> c_attn(6 * 18);
  file.read("transformer.h.1.attn.c_attn.weight", c_attn.data(), 6 * 18 * 4);
  for (int64_t d = 0; d < 6; ++d) {
    for (int64_t j = 0; j < 18; ++j) {
      ASSERT_EQ(c_attn[static_cast<size_t>(d * 18 + j)],
                made_value("h.1.attn.c_attn.weight", j * 6 + d));
    }
  }
  const Json config = out.config();
  EXPECT_EQ(config["model_type"], "gpt2");
  EXPECT_EQ(config["architectures"], Json::array({"GPT2LMHeadModel"}));
  EXPECT_EQ(config["n_positions"], 5);
  EXPECT_EQ(config["activation_function"], "gelu_new");
  EXPECT_TRUE(config["n_inner"].is_null());
  EXPECT_TRUE(std::filesystem::exists(out.path + "/generation_config.json"));
}

TEST(HuggingFace, LlamaHasTheFormatsNamesAndShapes) {
  const Exported out(llama());
  const files::SafetensorsFile file = out.file();
  const std::map<std::string, Shape> of_block = {
      {"input_layernorm.weight", {16}},      {"self_attn.q_proj.weight", {16, 16}},
      {"self_attn.k_proj.weight", {8, 16}},  {"self_attn.v_proj.weight", {8, 16}},
      {"self_attn.o_proj.weight", {16, 16}}, {"post_attention_layernorm.weight", {16}},
      {"mlp.gate_proj.weight", {10, 16}},    {"mlp.up_proj.weight", {10, 16}},
      {"mlp.down_proj.weight", {16, 10}}};
  std::map<std::string, Shape> expected = {{"model.embed_tokens.weight", {13, 16}},
                                           {"model.norm.weight", {16}},
                                           {"lm_head.weight", {13, 16}}};
  for (const auto& [name, shape] : of_block) {
    expected["model.layers.0." + name] = shape;
    expected["model.layers.1." + name] = shape;
  }
  std::map<std::string, Shape> there;
  for (const std::string& name : file.names()) there[name] = file.info(name).shape;
  EXPECT_EQ(there, expected);
  const std::pair<const char*, int64_t> first_rows[] = {
      {"q_proj", 0}, {"k_proj", 16}, {"v_proj", 24}};
  for (const auto& [name, row] : first_rows) {
    float first = 0;
    file.read_part(base::str("model.layers.1.self_attn.", name, ".weight"), 0, 4, &first);
    EXPECT_EQ(first, made_value("h.1.attn.c_attn.weight", row * 16)) << name;
  }
  float up = 0;
  file.read_part("model.layers.0.mlp.up_proj.weight", 0, 4, &up);
  EXPECT_EQ(up, made_value("h.0.mlp.gate_up.weight", 10 * 16));
}

TEST(HuggingFace, SeveralFilesAndAnIndex) {
  const Exported out(llama(), {.dtype = "F32", .file_bytes = 3000});
  EXPECT_FALSE(std::filesystem::exists(out.path + "/model.safetensors"));
  const Json index = Json::parse(on_disk::get(out.path + "/model.safetensors.index.json"));
  int64_t elements = 0;
  for (const WeightInfo& tensor : out.weights.list()) elements += tensor.numel;
  EXPECT_EQ(index["metadata"]["total_size"], elements * 4);
  std::set<std::string> files;
  for (const auto& file : index["weight_map"]) files.insert(file.get<std::string>());
  EXPECT_GT(files.size(), 2u);
  EXPECT_EQ(*files.begin(), base::str("model-00001-of-0000", files.size(), ".safetensors"));
  expect_same_model(*open_hugging_face(out.path), out.weights);

  Json moved = index;
  moved["weight_map"]["lm_head.weight"] = *files.begin();
  on_disk::put(out.path + "/model.safetensors.index.json", moved.dump());
  EXPECT_NE(out.refusal().find("\"lm_head.weight\" should lie in"), std::string::npos);
  moved["weight_map"]["lm_head.weight"] = "../elsewhere.safetensors";
  on_disk::put(out.path + "/model.safetensors.index.json", moved.dump());
  EXPECT_NE(out.refusal().find("no file of this folder"), std::string::npos);
}

TEST(HuggingFace, NarrowTypesAreTheNearest) {
  for (const std::string dtype : {"BF16", "F16"}) {
    const Exported out(gpt2(), {.dtype = dtype});
    const auto read = open_hugging_face(out.path);
    for (const std::string name : {"h.0.mlp.c_fc.weight", "wte.weight"}) {
      const std::vector<float> values = all_of(*read, name);
      for (size_t i = 0; i < values.size(); ++i) {
        const float made = made_value(name, static_cast<int64_t>(i));
        float near = 0;
        if (dtype == "F16") {
          base::Float16 half{};
          base::narrow(made, half);
          near = base::widen(half);
        } else {
          base::BFloat16 half{};
          base::narrow(made, half);
          near = base::widen(half);
        }
        ASSERT_EQ(values[i], near) << dtype << " " << name << " " << i;
      }
    }
  }
}

TEST(HuggingFace, AnyRunOfElementsIsThatRun) {
  const Exported out(llama());
  const Exported other(gpt2());
  for (const std::string& path : {out.path, other.path}) {
    const auto read = open_hugging_face(path);
    for (const WeightInfo& tensor : read->list()) {
      for (int64_t first = 0; first < tensor.numel; first += 37) {
        const int64_t count = std::min<int64_t>(101, tensor.numel - first);
        std::vector<float> run(static_cast<size_t>(count));
        read->read(tensor.name, first, count, run.data());
        for (int64_t i = 0; i < count; ++i) {
          ASSERT_EQ(run[static_cast<size_t>(i)], made_value(tensor.name, first + i))
              << tensor.name << " " << first + i;
        }
      }
      float beyond = 0;
      EXPECT_THROW(read->read(tensor.name, tensor.numel, 1, &beyond), StateError);
    }
  }
}

TEST(HuggingFace, WhatOlderProgramsSavedBesideWeightsIsPassedOver) {
  const Exported out(gpt2());
  std::vector<float> mask(25);
  out.rewrite([&](auto& entries) {
    std::map<std::string, files::TensorEntry> bare;
    for (const auto& [name, entry] : entries) bare[name.substr(12)] = entry;
    bare["h.0.attn.bias"] = {
        .name = "", .dtype = "F32", .shape = {1, 1, 5, 5}, .data = mask.data(), .bytes = 100};
    bare["h.1.attn.masked_bias"] = {
        .name = "", .dtype = "F32", .shape = {}, .data = mask.data(), .bytes = 4};
    bare["lm_head.weight"] = bare["wte.weight"];
    entries = bare;
  });
  expect_same_model(*open_hugging_face(out.path), out.weights);
  std::vector<float> other(66, 0.5f);
  out.rewrite([&](auto& entries) { entries["lm_head.weight"].data = other.data(); });
  EXPECT_NE(out.refusal().find("differ, but the model's settings say that they are tied"),
            std::string::npos);
}

TEST(HuggingFace, TensorsThatDoNotFitAreNamed) {
  const auto refusal =
      [](const std::function<void(std::map<std::string, files::TensorEntry>&)>& edit) {
        const Exported out(gpt2());
        out.rewrite(edit);
        const std::string message = out.refusal();
        EXPECT_NE(message.find(out.path), std::string::npos) << message;
        return message;
      };
  EXPECT_NE(refusal([](auto& e) {
              e.erase("transformer.h.1.ln_2.bias");
            }).find("lacks \"transformer.h.1.ln_2.bias\""),
            std::string::npos);
  EXPECT_NE(refusal([](auto& e) {
              e["score.weight"] = e["transformer.wpe.weight"];
            }).find("holds \"score.weight\", of which the model has no use"),
            std::string::npos);
  EXPECT_NE(refusal([](auto& e) {
              e["transformer.wpe.weight"].shape = {6, 5};
            }).find("\"transformer.wpe.weight\" is [6, 5]; the model's settings make it [5, 6]"),
            std::string::npos);
  EXPECT_NE(refusal([](auto& e) {
              e["transformer.ln_f.bias"].dtype = "I32";
            }).find("\"transformer.ln_f.bias\" is I32; F32, F16 and BF16 are read"),
            std::string::npos);
}

TEST(HuggingFace, EverySettingIsTakenOrRefusedWithItsValue) {
  const std::vector<std::pair<Json, std::string>> gpt2_patches = {
      {{{"model_type", "gpt_neo"}}, "model_type \"gpt_neo\""},
      {{{"architectures", {"GPT2ForSequenceClassification"}}}, "GPT2ForSequenceClassification"},
      {{{"activation_function", "gelu"}}, "\"activation_function\" is \"gelu\""},
      {{{"scale_attn_weights", false}}, "\"scale_attn_weights\" is false"},
      {{{"scale_attn_by_inverse_layer_idx", true}}, "\"scale_attn_by_inverse_layer_idx\" is true"},
      {{{"add_cross_attention", true}}, "\"add_cross_attention\" is true"},
      {{{"pruned_heads", {{"0", {1}}}}}, "\"pruned_heads\" is"},
      {{{"quantization_config", {{"bits", 4}}}}, "\"quantization_config\" is"},
      {{{"auto_map", {{"AutoModel", "x.Y"}}}}, "\"auto_map\" is"},
      {{{"n_ctx", 77}}, "\"n_ctx\" is 77"},
      {{{"n_layer", 0}}, "model.layers = 0"},
      {{{"n_layer", 1'000'000'000}}, "1000000000"},
      {{{"n_head", 4}}, "does not divide by 4 heads"},
      {{{"n_head", "two"}}, "\"n_head\" is \"two\""},
      {{{"alibi", true}}, "\"alibi\" is true, which Lockstep does not know"},
      {{{"lockstep_tokenizer", "mine"}}, "\"lockstep_tokenizer\" is \"mine\""}};
  for (const auto& [patch, wanted] : gpt2_patches) {
    const Exported out(gpt2());
    out.change(patch);
    EXPECT_NE(out.refusal().find(wanted), std::string::npos) << patch << "\n" << out.refusal();
  }
  const std::vector<std::pair<Json, std::string>> llama_patches = {
      {{{"hidden_act", "gelu"}}, "\"hidden_act\" is \"gelu\""},
      {{{"attention_bias", true}}, "\"attention_bias\" is true"},
      {{{"mlp_bias", true}}, "\"mlp_bias\" is true"},
      {{{"head_dim", 8}}, "\"head_dim\" is 8"},
      {{{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}}, "\"rope_scaling\" is"},
      {{{"rope_scaling", {{"type", "dynamic"}}}}, "\"rope_scaling\" is"},
      {{{"rope_parameters", {{"rope_type", "yarn"}}}}, "\"rope_parameters\" is"},
      {{{"rope_parameters", {{"rope_type", "default"}, {"factor", 2.0}}}}, "\"factor\" is 2.0"},
      {{{"partial_rotary_factor", 0.5}}, "\"partial_rotary_factor\" is 0.5"},
      {{{"sliding_window", 4096}}, "\"sliding_window\" is 4096"},
      {{{"rope_interleaved", true}}, "\"rope_interleaved\" is true"},
      {{{"num_key_value_heads", 3}}, "do not divide by 3"}};
  for (const auto& [patch, wanted] : llama_patches) {
    const Exported out(llama());
    out.change(patch);
    EXPECT_NE(out.refusal().find(wanted), std::string::npos) << patch << "\n" << out.refusal();
  }
}

TEST(HuggingFace, RopeIsReadFromEitherPlace) {
  const Exported out(llama());
  Json json = out.config();
  json.erase("rope_theta");
  json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 123456.0}};
  on_disk::put(out.path + "/config.json", json.dump());
  EXPECT_EQ(open_hugging_face(out.path)->origin().config.model.rope_theta, 123456.0);
  json["rope_parameters"] = nullptr;
  on_disk::put(out.path + "/config.json", json.dump());
  EXPECT_EQ(open_hugging_face(out.path)->origin().config.model.rope_theta, 10'000.0);
}

TEST(HuggingFace, WhatIsNotAsAUserMayThinkIsSaid) {
  plan::TrainConfig bare = gpt2();
  bare.model.bias = false;
  const Exported out(bare);
  ASSERT_EQ(out.notes.size(), 2u);
  EXPECT_NE(out.notes[0].find("zeros"), std::string::npos);
  EXPECT_NE(out.notes[1].find("No tokenizer is written"), std::string::npos);
  const auto read = open_hugging_face(out.path);
  for (const float value : all_of(*read, "h.0.attn.c_attn.bias")) EXPECT_EQ(value, 0);
  out.change({{"embd_pdrop", 0.3}});
  const auto uneven = open_hugging_face(out.path);
  ASSERT_EQ(uneven->origin().notes.size(), 1u);
  EXPECT_NE(uneven->origin().notes[0].find("model.dropout is 0"), std::string::npos);
  Json json = out.config();
  json.erase("lockstep_tokenizer");
  on_disk::put(out.path + "/config.json", json.dump());
  EXPECT_FALSE(open_hugging_face(out.path)->origin().knows_tokenizer);
}

TEST(HuggingFace, AnExportIsWholeOrNotThere) {
  const TempFolder folder;
  const MadeWeights weights(gpt2(), 11);
  on_disk::put(folder.file("notes.txt"), "mine");
  EXPECT_THROW(write_hugging_face(weights, folder.path()), UsageError);
  EXPECT_THROW(write_hugging_face(weights, folder.file("x"), {.dtype = "F64"}), UsageError);
  {
    const on_disk::FileSizeLimit full(1000);
    EXPECT_THROW(write_hugging_face(weights, folder.file("model")), StateError);
  }
  EXPECT_EQ(on_disk::files_in(folder.path()), 1);
  plan::TrainConfig mlp = gpt2();
  mlp.model.family = "mlp";
  EXPECT_THROW(write_hugging_face(MadeWeights(mlp, 11), folder.file("model")), UsageError);
  std::filesystem::create_directory(folder.file("empty"));
  EXPECT_NO_THROW(write_hugging_face(weights, folder.file("empty")));
}

}  // namespace
}  // namespace lockstep::checkpoints
