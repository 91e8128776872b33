#include "lockstep/checkpoint/llmc.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/base/half.h"
#include "lockstep/base/str.h"
#include "tests/checkpoint/made_weights.h"
#include "tests/files/on_disk.h"
#include "tests/support/temp_folder.h"

namespace lockstep::checkpoints {
namespace {

using testing::all_of;
using testing::made_value;
using Header = std::array<int32_t, 256>;

constexpr int64_t T = 5, V = 11, L = 2, C = 6, Padded = 128;

/// A file as llm.c writes it, by its description alone: no table of Lockstep's.
std::string made_file(int32_t version, const std::function<void(Header&)>& edit = {}) {
  Header header{20240326, version, T, V, L, 2, C, Padded};
  if (edit) edit(header);
  std::string bytes(reinterpret_cast<const char*>(header.data()), sizeof header);
  const auto put = [&](const std::string& name, int64_t count, int64_t padding = 0) {
    for (int64_t i = 0; i < count + padding; ++i) {
      const float value = i < count ? made_value(name, i) : 999.0f;
      base::BFloat16 half{};
      base::narrow(value, half);
      bytes.append(version == 5 ? reinterpret_cast<const char*>(&half)
                                : reinterpret_cast<const char*>(&value),
                   version == 5 ? 2 : 4);
    }
  };
  put("wte.weight", V * C, (Padded - V) * C);
  put("wpe.weight", T * C);
  const std::pair<const char*, int64_t> kinds[] = {{"ln_1.weight", C},
                                                   {"ln_1.bias", C},
                                                   {"attn.c_attn.weight", 3 * C * C},
                                                   {"attn.c_attn.bias", 3 * C},
                                                   {"attn.c_proj.weight", C * C},
                                                   {"attn.c_proj.bias", C},
                                                   {"ln_2.weight", C},
                                                   {"ln_2.bias", C},
                                                   {"mlp.c_fc.weight", 4 * C * C},
                                                   {"mlp.c_fc.bias", 4 * C},
                                                   {"mlp.c_proj.weight", 4 * C * C},
                                                   {"mlp.c_proj.bias", C}};
  for (const auto& [kind, count] : kinds) {
    for (int64_t layer = 0; layer < L; ++layer) put(base::str("h.", layer, ".", kind), count);
  }
  put("ln_f.weight", C);
  put("ln_f.bias", C);
  return bytes;
}

struct Llmc : ::testing::Test {
  lockstep::testing::TempFolder folder;
  std::string path = folder.file("model_00000010.bin");

  std::string refusal(const std::string& bytes) const {
    on_disk::put(path, bytes);
    try {
      open_weights(path);
    } catch (const StateError& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(Llmc, HoldsTheModelInBothTypes) {
  on_disk::put(path, made_file(3));
  const auto weights = open_weights(path);
  EXPECT_EQ(weights->origin().kind, "llm.c, fp32");
  EXPECT_EQ(weights->origin().vocab, V);
  EXPECT_EQ(digest_of(*weights).text(), digest_of(testing::MadeWeights(testing::gpt2(), V)).text());
  EXPECT_NO_THROW(require_same_model(*weights, testing::gpt2(), V));
  on_disk::put(path, made_file(5));
  const auto halves = open_weights(path);
  const std::vector<float> values = all_of(*halves, "h.1.mlp.c_proj.weight");
  for (size_t i = 0; i < values.size(); ++i) {
    base::BFloat16 half{};
    base::narrow(made_value("h.1.mlp.c_proj.weight", static_cast<int64_t>(i)), half);
    ASSERT_EQ(values[i], base::widen(half));
  }
}

TEST_F(Llmc, WhatDoesNotFitIsRefused) {
  const std::string whole = made_file(3);
  EXPECT_NE(refusal(whole.substr(0, whole.size() - 1)).find("its header makes a file of"),
            std::string::npos);
  EXPECT_NE(refusal(whole.substr(0, 600)).find("600 bytes"), std::string::npos);
  EXPECT_NE(refusal(made_file(1)).find("version 1"), std::string::npos);
  const std::pair<int, int32_t> wrong[] = {{2, 0}, {3, -1},      {4, 1 << 30}, {4, 1 << 22},
                                           {5, 4}, {6, 1 << 28}, {7, 10},      {2, 6}};
  for (const auto& [place, value] : wrong) {
    const std::string message =
        refusal(made_file(3, [&](Header& h) { h[static_cast<size_t>(place)] = value; }));
    EXPECT_NE(message.find(path), std::string::npos) << place << " " << value;
  }
}

}  // namespace
}  // namespace lockstep::checkpoints
