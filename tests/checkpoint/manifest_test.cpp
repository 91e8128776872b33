// Manifest and index: each has one text, and no other text is read as one.

#include "lockstep/checkpoint/manifest.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/files/sha256.h"
#include "tests/files/on_disk.h"

namespace lockstep::checkpoints {
namespace {

using on_disk::message_of;
using Json = nlohmann::json;

Manifest a_manifest() {
  Manifest manifest{.step = 20,
                    .saved_at = "2024-05-01T12:00:00Z",
                    .config = {},
                    .vocab = 256,
                    .identity = "kernels fused, \u00fc",
                    .param_digest = plan::Digest{1, 2}.text(),
                    .world = 3,
                    .state = {{"cursor", {1, 2}}},
                    .rank_states = {"a", "", "c"},
                    .index_bytes = 77,
                    .index_sha256 = files::sha256_hex("index"),
                    .files = {}};
  manifest.config.optim.lr = 0.1;  // not exact in binary
  for (const char* name : {"part_0000.safetensors", "part_0001.safetensors"}) {
    manifest.files.push_back({.name = name,
                              .bytes = 100,
                              .header_sha256 = files::sha256_hex(name),
                              .values = {3, 4},
                              .elements = 10,
                              .params = {5, 6}});
  }
  return manifest;
}

std::string refusal(const std::string& text) {
  return message_of<StateError>([&text] { parse_manifest(text); });
}

/// The text whose digest is right, after `change`.
std::string with(const std::function<void(Json&)>& change) {
  Json body = Json::parse(manifest_text(a_manifest()));
  body.erase("sha256");
  change(body);
  body["sha256"] = files::sha256_hex(body.dump());
  return body.dump(1, ' ', true) + '\n';
}

TEST(Manifest, ReadsWhatItWrote) {
  const std::string text = manifest_text(a_manifest());
  const Manifest read = parse_manifest(text);
  EXPECT_EQ(manifest_text(read), text);
  EXPECT_EQ(read.files, a_manifest().files);
  EXPECT_EQ(read.rank_states, a_manifest().rank_states);
  EXPECT_EQ(read.config.optim.lr, 0.1);
  EXPECT_EQ(read.bytes(), 277);
}

TEST(Manifest, EveryOtherByteAnywhereIsSeen) {
  const std::string text = manifest_text(a_manifest());
  for (size_t at = 0; at < text.size(); ++at) {
    std::string other = text;
    other[at] ^= static_cast<char>(1 << (at % 8));
    EXPECT_NE(refusal(other), "") << "byte " << at << ": " << text.substr(at, 20);
    EXPECT_NE(refusal(text.substr(0, at)), "") << "cut at " << at;
  }
  EXPECT_NE(refusal(text + "\n"), "");
  EXPECT_NE(refusal(Json::parse(text).dump()), "") << "other spaces";
}

TEST(Manifest, SaysWhatItCannotUse) {
  EXPECT_EQ(refusal(with([](Json&) {})), "");
  const auto expect = [](const std::string& part, const std::function<void(Json&)>& change) {
    const std::string message = refusal(with(change));
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect("of schema 2, this program reads 1", [](Json& json) { json["schema"] = 2; });
  expect("no manifest of a checkpoint", [](Json& json) { json["format"] = "x"; });
  expect("a field is missing", [](Json& json) { json.erase("world"); });
  expect("where a count belongs", [](Json& json) { json["step"] = -1; });
  expect("where a count belongs", [](Json& json) { json["step"] = uint64_t{1} << 63; });
  expect("where a count belongs", [](Json& json) { json["files"][0]["bytes"] = 1.5; });
  expect("where a small count belongs", [](Json& json) { json["world"] = int64_t{1} << 40; });
  expect("lists a file twice", [](Json& json) { json["files"][1] = json["files"][0]; });
  expect("its settings cannot be read", [](Json& json) { json["config"]["optim"]["lrr"] = 1; });
  for (const char* name : {"", "..", "../part", "a/b", "/etc/passwd", ".hidden"}) {
    expect("no name in its folder", [name](Json& json) { json["files"][0]["name"] = name; });
  }
}

SavedTensor a_tensor(const std::string& kind, const std::string& name) {
  return {.kind = kind,
          .name = name,
          .shape = {6, 2},
          .dim = 0,
          .blocks = {4, 4},
          .grains = 2,
          .slices = {{.file = 0, .grain = 0, .lo = 0, .hi = 3},
                     {.file = 1, .grain = 0, .lo = 3, .hi = 8},
                     {.file = 1, .grain = 1, .lo = 0, .hi = 8}}};
}

std::string index_refusal(const std::function<void(Json&)>& change) {
  Json json = Json::parse(index_text({{a_tensor("exp_avg", "w"), a_tensor("param", "w")}}));
  change(json["tensors"]);
  return message_of<StateError>([&json] { parse_index(json.dump(), 2); });
}

TEST(Index, ReadsWhatItWroteAndFindsByKindAndName) {
  Index index;
  for (const char* kind : {"param", "average", "exp_avg"}) {
    for (const char* name : {"w", "b"}) index.add(a_tensor(kind, name));
  }
  const std::string text = index_text(index);
  const Index read = parse_index(text, 2);
  EXPECT_EQ(index_text(read), text);
  ASSERT_NE(read.find("param", "w"), nullptr);
  EXPECT_EQ(read.find("param", "w")->slices, a_tensor("param", "w").slices);
  EXPECT_EQ(read.find("param", "v"), nullptr);
  EXPECT_EQ(read.find("momentum", "w"), nullptr);
}

TEST(Index, SlicesComeInAnyOrder) {
  SavedTensor early = a_tensor("param", "w"), late = early;
  early.slices = {early.slices[2], early.slices[0]};
  late.slices = {late.slices[1]};
  Index index;
  index.add(early);
  index.add(late);
  EXPECT_EQ(index.find("param", "w")->slices, a_tensor("param", "w").slices);
}

TEST(Index, EveryElementHasOnePlace) {
  EXPECT_EQ(index_refusal([](Json&) {}), "");
  const auto expect = [](const std::string& part, const std::function<void(Json&)>& change) {
    const std::string message = index_refusal(change);
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect("begins at element 4 where 3 is next", [](Json& all) { all[0]["slices"][1][2] = 4; });
  expect("begins at element 2 where 3 is next", [](Json& all) { all[0]["slices"][1][2] = 2; });
  expect("grain 1: its slices hold 7 of 8", [](Json& all) { all[1]["slices"][2][3] = 7; });
  expect("grain 1: its slices hold 9 of 8", [](Json& all) { all[1]["slices"][2][3] = 9; });
  expect("grain 1: its slices hold 0 of 8", [](Json& all) { all[1]["slices"].erase(2); });
  expect("where 3 is next", [](Json& all) {
    all[0]["slices"].insert(all[0]["slices"].begin() + 1, all[0]["slices"][0]);
  });
  expect("its slices are not in order",
         [](Json& all) { std::swap(all[0]["slices"][0], all[0]["slices"][1]); });
  expect("file 2 of 2", [](Json& all) { all[0]["slices"][0][0] = 2; });
  expect("a grain that it has not", [](Json& all) { all[0]["slices"][0][1] = 2; });
  expect("kind and name", [](Json& all) { all[1] = all[0]; });
  expect("kind and name", [](Json& all) { std::swap(all[0], all[1]); });
  expect("impossible shape", [](Json& all) { all[0]["shape"] = {1 << 30, 1 << 30, 1 << 30}; });
  expect("cut as none can be", [](Json& all) { all[0]["cut"]["blocks"] = {3, 5}; });
  expect("cut as none can be", [](Json& all) { all[0]["cut"]["blocks"] = {2, 2}; });
  expect("cut as none can be", [](Json& all) { all[0]["cut"]["dim"] = 2; });
  expect("cut as none can be", [](Json& all) { all[0]["cut"]["grains"] = 0; });
  expect("a slice that is none", [](Json& all) { all[0]["slices"][0].erase(0); });
  expect("without a name", [](Json& all) { all[0]["name"] = ""; });
  EXPECT_NE(message_of<StateError>([] { parse_index("[]", 1); }), "");
  EXPECT_NE(message_of<StateError>([] { parse_index("", 1); }), "");
}

}  // namespace
}  // namespace lockstep::checkpoints
