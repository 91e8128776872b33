#include "lockstep/files/witness_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/files/safetensors.h"
#include "lockstep/plan/param_table_json.h"
#include "tests/files/on_disk.h"
#include "tests/support/temp_folder.h"

namespace lockstep::files {
namespace {

using on_disk::message_of;
using testing::TempFolder;

plan::Digest digest_of(const std::vector<float>& values) {
  plan::Digest digest;
  digest.add("a", 0, values.data(), std::ssize(values));
  return digest;
}

StepWitness witness(int rank, int64_t step) {
  StepWitness made{.rank = rank,
                   .step = step,
                   .loss = 0.1 + 0.2,  // 17 digits
                   .grad_norm = std::numeric_limits<double>::infinity(),
                   .table = plan::make_param_table({{.name = "w", .shape = {2, 3}, .init = {}},
                                                    {.name = "b", .shape = {3}, .init = {}}},
                                                   {}),
                   .digests = {},
                   .pieces = {}};
  made.digests = {{"activation", "blocks.1", 2, 1, digest_of({1, 2})},
                  {"leaf-gradient", "w", 2, -1, digest_of({-0.0f})}};
  made.pieces = {{"gradient", 0, 4, 6, {1.5f, -0.0f}},
                 {"parameter", 1, 0, 3, {1e-45f, std::numeric_limits<float>::infinity(), 3}},
                 {"moment1", 1, 3, 3, {}}};
  return made;
}

TEST(WitnessFile, ComesBackByStepThenRank) {
  const TempFolder folder;
  const std::string place = folder.file("a/b");
  EXPECT_TRUE(read_witness(place).empty()) << "no folder: nothing was witnessed";
  for (const auto& [rank, step] : {std::pair{1, 1}, {0, 10}, {0, 2}, {0, 1}}) {
    write_witness(place, witness(rank, step));
  }
  on_disk::put(place + "/step_00000003.rank_0000.safetensors.tmp-1-1", "the beginning of one");
  const std::vector<StepWitness> back = read_witness(place);
  ASSERT_EQ(back.size(), 4u);
  std::vector<std::pair<int64_t, int>> order;
  for (const StepWitness& one : back) order.emplace_back(one.step, one.rank);
  EXPECT_EQ(order, (std::vector<std::pair<int64_t, int>>{{1, 0}, {1, 1}, {2, 0}, {10, 0}}));

  const StepWitness wanted = witness(0, 1);
  EXPECT_EQ(back[0].loss, wanted.loss);
  EXPECT_EQ(back[0].grad_norm, wanted.grad_norm);
  EXPECT_EQ(plan::to_json(back[0].table), plan::to_json(wanted.table));
  EXPECT_EQ(back[0].digests, wanted.digests);
  EXPECT_EQ(back[0].pieces, wanted.pieces);
  EXPECT_TRUE(std::signbit(back[0].pieces[0].values[1])) << "-0 has come back as 0";
}

TEST(WitnessFile, ALossThatIsNoNumberComesBack) {
  const TempFolder folder;
  StepWitness broken = witness(0, 1);
  broken.loss = std::nan("");
  write_witness(folder.path(), broken);
  EXPECT_TRUE(std::isnan(read_witness(folder.path()).at(0).loss));
}

TEST(WitnessFile, RefusesPiecesThatLieNowhere) {
  const TempFolder folder;
  const auto refusal = [&](const WitnessPiece& piece) {
    StepWitness wrong = witness(0, 1);
    wrong.pieces = {piece};
    return message_of<UsageError>([&] { write_witness(folder.path(), wrong); });
  };
  EXPECT_NE(refusal({"gradient", 2, 0, 1, {1}}).find("no elements 0 to 1 of parameter 2"),
            std::string::npos);
  EXPECT_NE(refusal({"gradient", 1, 3, 4, {1}}).find("no elements 3 to 4"), std::string::npos);
  EXPECT_NE(refusal({"gradient", 1, 2, 1, {}}).find("no elements 2 to 1"), std::string::npos);
  EXPECT_NE(refusal({"gradient", 1, 0, 2, {1}}).find("1 values of elements 0 to 2"),
            std::string::npos);
  EXPECT_EQ(on_disk::files_in(folder.path()), 0);
}

TEST(WitnessFile, NamesTheFileThatIsNoWitness) {
  const TempFolder folder;
  const std::string path = folder.file("step_00000001.rank_0000.safetensors");
  const auto refusal = [&] { return message_of<StateError>([&] { read_witness(folder.path()); }); };
  const float value = 1;
  const std::vector<TensorEntry> one = {
      {.name = "0", .dtype = "F32", .shape = {1}, .data = &value, .bytes = 4}};
  const auto put = [&](const std::string& text) {
    write_safetensors(path, one, {{"witness", text}});
    return refusal();
  };

  write_safetensors(path, one, {});
  EXPECT_NE(refusal().find(path), std::string::npos) << refusal();
  EXPECT_NE(refusal().find("no \"witness\""), std::string::npos);
  EXPECT_NE(put("{").find(path + " is no witness"), std::string::npos) << put("{");
  const auto with = [](const std::string& piece, const std::string& loss = "1") {
    return R"({"rank": 0, "step": 1, "grad_norm": "1", "digests": [], "loss": ")" + loss +
           R"(", "table": [{"name": "w", "shape": [6]}], "pieces": [)" + piece + "]}";
  };
  EXPECT_EQ(put(with(R"(["gradient", 0, 5, 6])")), "");
  EXPECT_NE(put(with(R"(["gradient", 0, 5, 7])")).find("no elements 5 to 7"), std::string::npos);
  EXPECT_NE(put(with(R"(["gradient", 0, 4, 6])")).find("has 4 bytes of F32, but its piece has 2"),
            std::string::npos);
  EXPECT_NE(put(with("", "one")).find("\"one\" is no number"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::files
