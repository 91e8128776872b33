// `lockstep bisect`: two runs that part are brought to the step and tensor, on any layouts; a
// record that is not what was computed is told from a computation that is another.

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "lockstep/checkpoint/folder.h"
#include "lockstep/checkpoint/part_file.h"
#include "lockstep/checkpoint/reader.h"
#include "tests/command/command.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;
using nlohmann::json;

struct Bisected {
  int code = -1;
  json found;
  std::string text;  // on stderr, with --json
};

Bisected bisect(const Arguments& words) {
  Arguments all = {"bisect", "--json"};
  all.insert(all.end(), words.begin(), words.end());
  const CommandResult result = lockstep(all);
  return {.code = result.exit_code,
          .found = json::parse(result.out, nullptr, /*allow_exceptions=*/false),
          .text = result.err};
}

std::vector<json> step_lines(const std::string& run) {
  std::vector<json> lines;
  std::ifstream in(run + "/metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    json parsed = json::parse(line);
    if (parsed.contains("loss")) lines.push_back(std::move(parsed));
  }
  return lines;
}

class Bisect : public ::testing::Test {
 protected:
  /// The folder of a run of 8 steps.
  std::string run(int ranks, const Arguments& settings) {
    Arguments words = tiny_nano();
    words.insert(words.end(), {"-n", std::to_string(ranks)});
    for (const char* setting : {"run.steps=8", "numerics.grains=4", "log.eval_every=0"}) {
      words.insert(words.end(), {"--set", setting});
    }
    for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
    return train(runs_, words)["run"];
  }

  /// The run is as if it had been killed after step 4, for which it has a checkpoint.
  static void back_to_step_4(const std::string& run) {
    fs::remove_all(checkpoint_of(run, 8));
    fs::remove(run + "/final.safetensors");
    fs::remove(run + "/summary.json");
  }

  static std::string checkpoint_of(const std::string& run, int64_t step) {
    return checkpoints::checkpoints_of(run) + "/" + checkpoints::folder_name(step);
  }

  static void resume(const Arguments& words) {
    Arguments all = {"train", "--resume"};
    all.insert(all.end(), words.begin(), words.end());
    const CommandResult result = lockstep(all);
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }

  static void expect_contains(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "looked for: " << part << "\nin: " << text;
  }

  TempFolder runs_;
};

TEST_F(Bisect, DigestsOfStepsAreTheSameOnAnyLayout) {
  const Arguments digests = {"log.digest_every=3", "numerics.tensor_grains=2"};
  const auto with = [&](Arguments further) {
    further.insert(further.end(), digests.begin(), digests.end());
    return further;
  };
  const std::vector<json> alone = step_lines(run(1, digests));
  ASSERT_EQ(alone.size(), 8u);
  for (const json& line : alone) {
    EXPECT_EQ(line.contains("param_digest"), line["step"].get<int>() % 3 == 0) << line;
  }
  EXPECT_NE(alone[2]["param_digest"], alone[5]["param_digest"]);
  for (const auto& [ranks, settings] :
       std::vector<std::pair<int, Arguments>>{{3, {"parallel.shard=zero3"}},
                                              {2, {"parallel.tensor=2"}},
                                              {4, {"parallel.tensor=2", "parallel.shard=zero1"}}}) {
    const std::vector<json> lines = step_lines(run(ranks, with(settings)));
    ASSERT_EQ(lines.size(), 8u);
    for (const size_t at : {size_t{2}, size_t{5}}) {
      EXPECT_EQ(lines[at]["param_digest"], alone[at]["param_digest"]) << ranks << " ranks";
    }
  }
  // That of the last step is the run's.
  const std::string whole = run(2, with({"run.steps=6"}));
  const json summary = json::parse(text_of(whole + "/summary.json"));
  EXPECT_EQ(step_lines(whole).back()["param_digest"], summary["param_digest"]);
}

TEST_F(Bisect, RunsOfOtherLayoutsAreEqualWithoutAReplay) {
  const std::string a = run(1, {"log.digest_every=2", "checkpoint.every=4"});
  const std::string b =
      run(3, {"log.digest_every=2", "checkpoint.every=4", "parallel.shard=zero2"});
  const Bisected result = bisect({a, b});
  EXPECT_EQ(result.code, 0) << result.text;
  EXPECT_EQ(result.found["outcome"], "equal");
  EXPECT_EQ(result.found["last_common"], 8);
  EXPECT_EQ(result.found["digests"], 6);
  EXPECT_EQ(result.text.find("replaying"), std::string::npos) << result.text;
  expect_contains(result.text, "parallel.shard is none in A, zero2 in B (changes no result)");
  expect_contains(result.text, "records   equal in steps 1 to 8 of both");
}

/// Where two runs with other settings part, and the first thing of a step that shows it.
struct Parting {
  std::string setting;
  std::string kind;
  std::string window;  // less than the stretch: witnesses come in a replay of their own
};

TEST_F(Bisect, SettingsThatARunWentOnWithPartItWhereTheyAct) {
  const std::string a = run(1, {"checkpoint.every=4"});
  for (const Parting& parting : {Parting{"optim.weight_decay=0.2", "parameter", "1"},
                                 Parting{"optim.beta2=0.9", "moment2", "2"}}) {
    const std::string b = run(2, {"checkpoint.every=4"});
    back_to_step_4(b);
    const std::string key = parting.setting.substr(0, parting.setting.find('='));
    resume({b, "-n", "2", "--set", "run.may_change=" + key, "--set", parting.setting});
    const Bisected result = bisect({a, b, "--window", parting.window});
    EXPECT_EQ(result.code, 1) << result.text;
    ASSERT_TRUE(result.found.is_object()) << result.text;
    EXPECT_EQ(result.found["outcome"], "found");
    EXPECT_EQ(result.found["low"], 4) << result.text;
    const json& difference = result.found["difference"];
    ASSERT_TRUE(difference.is_object()) << result.text;
    EXPECT_EQ(difference["step"], 5) << result.text;
    EXPECT_EQ(difference["kind"], parting.kind) << result.text;
    EXPECT_GE(difference["index"], 0);
    EXPECT_NE(difference["a"], difference["b"]);
    EXPECT_TRUE(result.found["replay_of_a"]["reproduces"]) << result.text;
    EXPECT_TRUE(result.found["replay_of_b"]["reproduces"]) << result.text;
    EXPECT_EQ(result.found["settings"][0]["key"], key);
    expect_contains(result.text, ", from step 5 on ");
    // Its replay changes settings where it did.
    const Bisected whole = bisect({b, "--replay", "--from", "0"});
    EXPECT_EQ(whole.code, 0) << whole.text;
    EXPECT_EQ(whole.found["replay"]["from"], 0) << whole.text;
  }
}

TEST_F(Bisect, MomentsAreFoundWhereNoFigureShowsThem) {
  // So small that no parameter moves.
  const Arguments resting = {"optim.lr=1e-60", "checkpoint.every=4"};
  const std::string a = run(1, resting);
  const std::string b = run(1, resting);
  back_to_step_4(b);
  resume({b, "--set", "run.may_change=optim.beta2", "--set", "optim.beta2=0.9"});
  const Bisected result = bisect({a, b});
  EXPECT_EQ(result.code, 1) << result.text;
  ASSERT_TRUE(result.found.is_object()) << result.text;
  EXPECT_EQ(result.found["recorded"]["what"], "checkpoint") << result.text;
  EXPECT_EQ(result.found["recorded"]["step"], 8) << result.text;
  // Steps 7 and 8 differ in all they have left, so the window moves back.
  expect_contains(result.text, "witnesses of steps 7 to 8");
  expect_contains(result.text, "witnesses of steps 5 to 6");
  EXPECT_EQ(result.found["difference"]["step"], 5) << result.text;
  EXPECT_EQ(result.found["difference"]["kind"], "moment2") << result.text;
}

TEST_F(Bisect, AFaultOfALayoutIsFoundInItsReplay) {
  const std::string a = run(1, {"checkpoint.every=4"});
  const std::string b = run(2, {"checkpoint.every=4"});
  back_to_step_4(b);
  // From here on its ranks are broken.
  const CommandResult broken = lockstep({"run", "-n", "2", "--", beside("lockstep-worker"), "train",
                                         b, "--plant", "skipped-reduction"});
  ASSERT_NE(broken.exit_code, 0);  // the ranks' parameters drift apart, which is found at the end
  const Bisected result = bisect({a, b, "--plant", "skipped-reduction"});
  EXPECT_EQ(result.code, 1) << result.text;
  ASSERT_TRUE(result.found.is_object()) << result.text;
  EXPECT_EQ(result.found["outcome"], "found") << result.text;
  const json& difference = result.found["difference"];
  EXPECT_EQ(difference["step"], 5) << result.text;
  EXPECT_EQ(difference["kind"], "gradient") << result.text;
  EXPECT_TRUE(result.found["replay_of_b"]["reproduces"]) << result.text;
  // Where replays are right, the record is what differs.
  const Bisected healthy = bisect({a, b});
  EXPECT_EQ(healthy.code, 1);
  EXPECT_EQ(healthy.found["outcome"], "not_reproduced") << healthy.text;
  EXPECT_TRUE(healthy.found["replay_of_a"]["reproduces"]);
  EXPECT_FALSE(healthy.found["replay_of_b"]["reproduces"]);
  EXPECT_GE(healthy.found["replay_of_b"]["figure"]["step"], 5);
}

/// One bit of one element is another, and all that is said of the files is right.
void damage(const std::string& folder, const std::string& kind, const std::string& name,
            int64_t index) {
  const checkpoints::Reader reader(folder);
  checkpoints::Manifest manifest = reader.manifest();
  const std::string unfinished = checkpoints::begin_folder(folder);
  checkpoints::Index rewritten;
  plan::Digest params;
  for (int file = 0; file < std::ssize(manifest.files); ++file) {
    std::vector<std::vector<float>> values;
    std::vector<checkpoints::SliceToWrite> slices;
    for (const checkpoints::SavedTensor& tensor : reader.index().tensors) {
      checkpoints::SavedTensor bare = tensor;
      bare.slices.clear();
      for (const checkpoints::SavedSlice& slice : tensor.slices) {
        if (slice.file != file) continue;
        const plan::Param param = tensor.grain_param(slice.grain);
        values.emplace_back(static_cast<size_t>(slice.hi - slice.lo));
        reader.read(tensor.kind, param, slice.lo, slice.hi, values.back().data());
        for (const plan::LogicalRun& part : plan::logical_runs(param, slice.lo, slice.hi)) {
          const bool hit = tensor.kind == kind && tensor.name == name && part.first >= 0 &&
                           index >= part.first && index < part.first + part.size();
          if (!hit) continue;
          float& value =
              values.back()[static_cast<size_t>(part.lo - slice.lo + index - part.first)];
          uint32_t bits = 0;
          std::memcpy(&bits, &value, sizeof bits);
          bits ^= 1U << 12;
          std::memcpy(&value, &bits, sizeof bits);
        }
        slices.push_back(
            {.tensor = bare, .grain = slice.grain, .lo = slice.lo, .hi = slice.hi, .values = {}});
      }
    }
    for (size_t i = 0; i < slices.size(); ++i) {
      slices[i].values = [&values, i] { return values[i].data(); };
    }
    const checkpoints::PartFile part = checkpoints::write_part(unfinished, file, slices);
    checkpoints::Manifest ignored;
    checkpoints::add_report(checkpoints::report_text(part, slices), ignored, rewritten);
    manifest.files[static_cast<size_t>(file)] = part;
    params.add(part.params);
  }
  manifest.param_digest = params.text();
  checkpoints::commit_folder(unfinished, folder, manifest, reader.index());
}

TEST_F(Bisect, OneBitInACheckpointIsFoundAtItsStepAndTensor) {
  const std::string a = run(1, {"checkpoint.every=4"});
  const std::string b = run(1, {"checkpoint.every=4", "checkpoint.keep=9"});
  back_to_step_4(b);
  damage(checkpoint_of(b, 4), checkpoints::kParam, "h.0.attn.c_proj.weight", 77);
  resume({b, "-n", "2"});
  const Bisected result = bisect({a, b});
  EXPECT_EQ(result.code, 1) << result.text;
  ASSERT_TRUE(result.found.is_object()) << result.text;
  EXPECT_EQ(result.found["outcome"], "not_reproduced") << result.text;
  EXPECT_TRUE(result.found["replay_of_a"]["reproduces"]) << result.text;
  const json& state = result.found["replay_of_b"]["state"];
  ASSERT_TRUE(state.is_object()) << result.text;
  EXPECT_EQ(state["step"], 4);
  EXPECT_EQ(state["name"], "h.0.attn.c_proj.weight");
  EXPECT_EQ(state["index"], 77);
  EXPECT_EQ(state["elements"], 1);
  // Where the other run has no checkpoint at that step, it is found behind it.
  fs::remove_all(checkpoint_of(a, 4));
  const Bisected behind = bisect({a, b});
  EXPECT_EQ(behind.found["recorded"]["step"], 5) << behind.text;
  EXPECT_EQ(behind.found["replay_of_b"]["state"]["index"], 77) << behind.text;
  // And by itself.
  const Bisected itself = bisect({b, "--replay", "--from", "0"});
  EXPECT_EQ(itself.code, 1) << itself.text;
  EXPECT_EQ(itself.found["replay"]["state"]["name"], "h.0.attn.c_proj.weight") << itself.text;
  // A run that begins at it has nothing of its own before.
  fs::copy(checkpoint_of(b, 4), runs_.file("given"), fs::copy_options::recursive);
  fs::remove_all(checkpoint_of(b, 4));
  const json begun = train(runs_, {"--resume", runs_.file("given")});
  const Bisected after = bisect({a, begun["run"].get<std::string>()});
  EXPECT_EQ(after.code, 1) << after.text;
  EXPECT_EQ(after.found["outcome"], "state") << after.text;
  EXPECT_EQ(after.found["start"]["step"], 4) << after.text;
  EXPECT_EQ(after.found["start"]["index"], 77) << after.text;
}

TEST_F(Bisect, AnotherByteOfTheDataIsFoundWhereItIsRead) {
  const std::string changed = runs_.file("changed.bin");
  // Every 400th token is another: 8 steps read 4224 of them.
  std::string bytes = text_of("data/austen/train.bin");
  for (size_t at = 2 * 400; at < bytes.size(); at += 2 * 400) bytes[at] ^= 1;
  std::ofstream(changed, std::ios::binary) << bytes;
  const std::string a = run(1, {"log.digest_every=1"});
  const std::string b = run(2, {"data.train=" + changed});
  const Bisected result = bisect({a, b});
  EXPECT_EQ(result.code, 1) << result.text;
  ASSERT_TRUE(result.found.is_object()) << result.text;
  EXPECT_EQ(result.found["outcome"], "found") << result.text;
  EXPECT_EQ(result.found["settings"][0]["key"], "data.train");
  const json& difference = result.found["difference"];
  EXPECT_EQ(difference["step"], result.found["recorded"]["step"]) << result.text;
  const std::set<std::string> kinds = {"activation", "loss"};
  EXPECT_TRUE(kinds.contains(difference["kind"].get<std::string>())) << result.text;
  EXPECT_GE(difference["element"]["index"], 0) << result.text;
}

TEST_F(Bisect, ARunIsReplayedInItsLayoutOrAnother) {
  const std::string a = run(2, {"checkpoint.every=4", "parallel.tensor=2"});
  const Bisected own = bisect({a, "--replay"});
  EXPECT_EQ(own.code, 0) << own.text;
  EXPECT_EQ(own.found["replay"]["from"], 4);
  EXPECT_EQ(own.found["replay"]["to"], 8);
  EXPECT_EQ(own.found["replay"]["ranks"], 2);
  EXPECT_TRUE(own.found["replay"]["reproduces"]);
  const std::string kept = runs_.file("kept");
  const Bisected other =
      bisect({a, "--replay", "--from", "3", "--to", "6", "-n", "3", "--keep", kept});
  EXPECT_EQ(other.code, 0) << other.text;
  EXPECT_EQ(other.found["replay"]["from"], 0);
  EXPECT_EQ(other.found["replay"]["ranks"], 3);
  EXPECT_FALSE(fs::is_empty(kept));
  // No figure and no digest knows of a moment.
  damage(checkpoint_of(a, 8), "exp_avg", "h.0.mlp.c_fc.weight", 5);
  const Bisected damaged = bisect({a, "--replay"});
  EXPECT_EQ(damaged.code, 1) << damaged.text;
  EXPECT_EQ(damaged.found["replay"]["figure"], nullptr) << damaged.text;
  const json& state = damaged.found["replay"]["state"];
  ASSERT_TRUE(state.is_object()) << damaged.text;
  EXPECT_EQ(state["kind"], "exp_avg");
  EXPECT_EQ(state["name"], "h.0.mlp.c_fc.weight");
  EXPECT_EQ(state["index"], 5);
}

TEST_F(Bisect, SaysWhyItCannotCompare) {
  const std::string a = run(1, {"run.steps=1"});
  const std::string b = run(1, {"run.steps=1", "model.width=64"});
  const Bisected models = bisect({a, b});
  EXPECT_EQ(models.code, 2);
  expect_contains(models.text, "the runs cannot be compared: model.width is 32 in ");
  EXPECT_EQ(bisect({a}).code, 2);
  EXPECT_EQ(bisect({a, runs_.path()}).code, 2);
  const Bisected many = bisect({a, "--replay", "-n", "65"});
  EXPECT_EQ(many.code, 2);
  expect_contains(many.text, "--ranks-limit 65");
  const Bisected beyond = bisect({a, "--replay", "--to", "9"});
  EXPECT_EQ(beyond.code, 2);
  expect_contains(beyond.text, "This fits: --to 1");
}

}  // namespace
}  // namespace lockstep::testing
