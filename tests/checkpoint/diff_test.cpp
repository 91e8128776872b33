// What differs between two checkpoints or models.

#include "lockstep/checkpoint/diff.h"

#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/model_file.h"
#include "lockstep/checkpoint/reshard.h"
#include "lockstep/checkpoint/weights.h"
#include "tests/checkpoint/saved.h"
#include "tests/support/temp_folder.h"

namespace lockstep::checkpoints {
namespace {

using checkpoints::testing::deal;
using checkpoints::testing::save;
using checkpoints::testing::save_some;
using checkpoints::testing::some_tensors;
using checkpoints::testing::whole;

struct Diff : ::testing::Test {
  /// A checkpoint of one parameter "w" with these values.
  std::string of_values(const std::string& name, const std::vector<float>& values) {
    const auto count = std::ssize(values);
    const SavedTensor tensor = whole(kParam, "w", {count});
    Manifest manifest{.step = 1,
                      .saved_at = "",
                      .config = {},
                      .identity = "x",
                      .param_digest = "",
                      .world = 1,
                      .state = {},
                      .rank_states = {},
                      .index_sha256 = "",
                      .files = {}};
    Index index;
    const std::string unfinished = begin_folder(folder.file(name));
    const std::vector<SliceToWrite> slices = {
        {.tensor = tensor, .grain = 0, .lo = 0, .hi = count, .values = [&values] {
           return values.data();
         }}};
    add_report(report_text(write_part(unfinished, 0, slices), slices), manifest, index);
    manifest.param_digest = manifest.files[0].params.text();
    commit_folder(unfinished, folder.file(name), manifest, index);
    return folder.file(name);
  }

  lockstep::testing::TempFolder folder;
  std::string a = folder.file("a");
  std::string b = folder.file("b");
};

TEST_F(Diff, OtherFilesAndGrainsAreEqual) {
  save_some(a);
  reshard(a, b, 3);
  const Difference found = compare(a, b);
  EXPECT_TRUE(found.equal());
  EXPECT_TRUE(found.settings.empty());
  EXPECT_EQ(found.compared_tensors, std::ssize(some_tensors()));
  int64_t elements = 0;
  for (const SavedTensor& tensor : some_tensors()) elements += tensor.numel();
  EXPECT_EQ(found.compared_elements, elements);
}

TEST_F(Diff, SaysHowMuchAndWhereFirst) {
  const Difference found =
      compare(of_values("a", {1, 2, 0.0F, 4, 5}), of_values("b", {1, 2.5, -0.0F, 2, 5}));
  EXPECT_FALSE(found.equal());
  ASSERT_EQ(found.tensors.size(), 1u);
  const TensorDifference& tensor = found.tensors[0];
  EXPECT_EQ(tensor.kind, kParam);
  EXPECT_EQ(tensor.name, "w");
  EXPECT_EQ(tensor.numel, 5);
  EXPECT_EQ(tensor.elements, 3);  // 0 and -0 are other bits
  EXPECT_EQ(tensor.largest_absolute, 2);
  EXPECT_EQ(tensor.largest_relative, 0.5);
  EXPECT_EQ(tensor.first, 1);
  EXPECT_EQ(tensor.first_a, 2);
  EXPECT_EQ(tensor.first_b, 2.5);
}

TEST_F(Diff, WhatIsNoNumberIsInfinitelyFar) {
  const float nan = std::nanf("");
  EXPECT_TRUE(compare(of_values("a", {nan}), of_values("b", {nan})).equal());
  const Difference found = compare(a, of_values("c", {1}));
  ASSERT_EQ(found.tensors.size(), 1u);
  EXPECT_EQ(found.tensors[0].largest_absolute, std::numeric_limits<double>::infinity());
  EXPECT_EQ(found.tensors[0].largest_relative, std::numeric_limits<double>::infinity());
}

TEST_F(Diff, ComparesEveryKindTheStateAndTheSettings) {
  auto tensors = some_tensors();
  save(a, tensors, deal(tensors, 2, 100), 2, /*step=*/20);
  std::erase_if(tensors, [](const SavedTensor& tensor) {
    return tensor.kind == kAverage && tensor.name == "ln_f.bias";
  });
  for (SavedTensor& tensor : tensors) {
    if (tensor.kind == "exp_avg" && tensor.name == "ln_f.bias") tensor.shape = {4, 2};
  }
  save(b, tensors, deal(tensors, 3, 50), 3, /*step=*/30);
  const Difference found = compare(a, b);
  EXPECT_TRUE(found.tensors.empty());
  ASSERT_EQ(found.shapes.size(), 2u);
  EXPECT_EQ(found.shapes[0].what, "average ln_f.bias");
  EXPECT_EQ(found.shapes[0].b, "");
  EXPECT_EQ(found.shapes[1].what, "exp_avg ln_f.bias");
  EXPECT_EQ(found.shapes[1].a, "[8]");
  EXPECT_EQ(found.shapes[1].b, "[4, 2]");
  ASSERT_EQ(found.state.size(), 2u);
  EXPECT_EQ(found.state[0].what, "optimizer_steps");
  EXPECT_EQ(found.state[0].a, "20");
  EXPECT_EQ(found.state[0].b, "30");
  EXPECT_EQ(found.state[1].what, "step");
}

TEST_F(Diff, OtherSettingsAloneAreNoDifference) {
  save_some(a);
  Manifest manifest = read_manifest(a);
  const Index index = read_index(a, manifest);
  manifest.config.parallel.shard = "zero2";
  std::filesystem::create_directories(b + ".tmp-1");
  for (const PartFile& part : manifest.files) {
    std::filesystem::copy_file(a + "/" + part.name, b + ".tmp-1/" + part.name);
  }
  commit_folder(b + ".tmp-1", b, manifest, index);
  const Difference found = compare(a, b);
  EXPECT_TRUE(found.equal());
  ASSERT_EQ(found.settings.size(), 1u);
  EXPECT_EQ(found.settings[0].what, "parallel.shard");
  EXPECT_EQ(found.settings[0].a, "none");
  EXPECT_EQ(found.settings[0].b, "zero2");
}

/// Of a checkpoint and a model file the weights are compared, whatever the checkpoint's cut.
TEST_F(Diff, ACheckpointAndItsModelFile) {
  save_some(a);
  const std::string file = folder.file("model.safetensors");
  write_model_file(file, *open_weights(a));
  const Difference found = compare(a, file);
  EXPECT_TRUE(found.equal());
  EXPECT_EQ(found.compared_tensors, 5);  // 4 parameters, and running values
  EXPECT_TRUE(found.settings.empty());

  save_some(b, 20, /*more=*/1);
  const Difference other = compare(file, b);
  EXPECT_EQ(other.tensors.size(), 5u);
  EXPECT_EQ(other.tensors[0].elements, other.tensors[0].numel);
}

TEST_F(Diff, TheWeightsOfACheckpointHaveItsDigest) {
  const Manifest manifest = save_some(a);
  const auto weights = open_weights(a);
  EXPECT_EQ(digest_of(*weights).text(), manifest.param_digest);
  EXPECT_EQ(weights->origin().param_digest, manifest.param_digest);
  EXPECT_EQ(weights->origin().step, 20);
  std::vector<std::string> names;
  for (const WeightInfo& tensor : weights->list()) names.push_back(tensor.name);
  EXPECT_EQ(names, (std::vector<std::string>{"h.0.attn.c_attn.weight", "h.0.attn.c_proj.weight",
                                             "ln_f.bias", "norm.running_mean", "wte.weight"}));
}

/// final.safetensors is a run's end; a run that went on from there is further in its checkpoints.
TEST_F(Diff, ARunStandsForItsLatestWeights) {
  const std::string run = folder.file("run");
  EXPECT_THROW(open_weights(run), StateError);
  save_some(run + "/checkpoints/step_00000010", 10);
  EXPECT_EQ(open_weights(run)->origin().step, 10);
  save_some(a, 20);
  write_model_file(run + "/final.safetensors", *open_weights(a));
  EXPECT_EQ(open_weights(run)->origin().step, 20);
  EXPECT_EQ(open_weights(run)->origin().path, run + "/final.safetensors");
  save_some(run + "/checkpoints/step_00000030", 30);
  EXPECT_EQ(open_weights(run)->origin().step, 30);
}

}  // namespace
}  // namespace lockstep::checkpoints
