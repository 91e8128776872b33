// What `lockstep train` divides, computes again, offloads and caps, as its user meets it.

#include <gtest/gtest.h>

#include "tests/command/command.h"

namespace lockstep::testing {
namespace {

using Arguments = std::vector<std::string>;

Arguments tiny(int ranks, const Arguments& settings) {
  Arguments all = tiny_nano();
  all.insert(all.end(), {"-n", std::to_string(ranks), "--set", "run.steps=5"});
  for (const std::string& setting : settings) all.insert(all.end(), {"--set", setting});
  return all;
}

std::string bits_of(const nlohmann::json& summary) {
  return summary["param_digest"].get<std::string>() + " " + summary["grad_norm"].dump() + " " +
         summary["loss"].dump() + " " + summary["val_loss"].dump();
}

TEST(ShardingOfARun, HasOneDigestInEveryLayout) {
  const TempFolder runs;
  const std::string alone = bits_of(train(runs, tiny(1, {})));
  const std::vector<std::pair<int, Arguments>> layouts = {
      {4, {"parallel.shard=zero1"}},
      {4, {"parallel.shard=zero2"}},
      {4, {"parallel.shard=zero3", "parallel.prefetch=0"}},
      {4, {"parallel.shard=zero3", "parallel.prefetch=2", "parallel.replicas=2"}},
      {3, {"parallel.shard=zero3", "memory.recompute=block"}},
      {2, {"parallel.shard=zero3", "memory.offload=disk", "memory.recompute=block"}},
      {2, {"memory.offload=disk", "memory.offload_kinds=optimizer+activations"}},
      {3, {"parallel.shard=zero2", "memory.offload=disk", "comm.engine=threads"}},
  };
  for (const auto& [ranks, settings] : layouts) {
    const nlohmann::json shared = train(runs, tiny(ranks, settings));
    EXPECT_EQ(bits_of(shared), alone) << settings.back() << " on " << ranks;
    for (const auto& [group, totals] : shared["groups"].items()) {
      EXPECT_EQ(totals["bytes"], totals["planned_bytes"]) << group << " " << settings.back();
    }
  }
}

TEST(ShardingOfARun, TheSavedModelIsThatOfOneRank) {
  const TempFolder runs;
  const nlohmann::json whole = train(runs, tiny(1, {}));
  const nlohmann::json divided =
      train(runs, tiny(3, {"parallel.shard=zero3", "memory.offload=disk"}));
  const auto file = [](const nlohmann::json& summary) {
    return summary["run"].get<std::string>() + "/final.safetensors";
  };
  const CommandResult reference = Command({"reference_digest", file(divided)}).wait();
  EXPECT_EQ(reference.out, whole["param_digest"].get<std::string>() + "\n") << reference.err;
  const CommandResult result = lockstep({"eval", divided["run"].get<std::string>(), "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(nlohmann::json::parse(result.out)["val_loss"], whole["val_loss"]);
}

/// An error that says what was alive offers what fits, and its offers do.
TEST(MemoryLimit, EndsWithWhatWasAliveAndWhatFits) {
  const TempFolder runs;
  const Arguments large = {"model.layers=12", "model.width=64", "data.global_batch=4",
                           "data.micro_batch=1", "model.context=16"};
  Arguments limited = large;
  limited.push_back("memory.limit_mb=6");
  Arguments words = {"train"};
  const Arguments settings = tiny(4, limited);
  words.insert(words.end(), settings.begin(), settings.end());
  words.insert(words.end(), {"--set", "run.dir=" + runs.path()});
  const CommandResult refused = lockstep(words);
  EXPECT_EQ(refused.exit_code, 7);
  for (const char* part : {"memory.limit_mb allows 6.0 MiB", "are alive", "of parameters",
                           "By the plan a rank of this run needs", "These fit:"}) {
    EXPECT_NE(refused.err.find(part), std::string::npos) << part << "\n" << refused.err;
  }
  // Each offer is a line of settings that a run can take.
  int offers = 0;
  for (size_t at = refused.err.find("    --set "); at != std::string::npos;
       at = refused.err.find("    --set ", at + 1)) {
    Arguments offered = limited;
    std::string line = refused.err.substr(at + 4, refused.err.find(" (", at) - at - 4);
    while (line.starts_with("--set ")) {
      const size_t end = std::min(line.find(' ', 6), line.size());
      offered.push_back(line.substr(6, end - 6));
      line = end < line.size() ? line.substr(end + 1) : "";
    }
    const nlohmann::json summary = train(runs, tiny(4, offered));
    for (const auto& rank : summary["ranks"]) {
      EXPECT_LE(rank["peak_bytes"]["parameters"].get<int64_t>(), 6 << 20);
    }
    ++offers;
  }
  EXPECT_GT(offers, 0);
}

TEST(MemoryLimit, AModelLargerThanARankTrainsDividedAndOffloaded) {
  const TempFolder runs;
  // 4 P, the masters alone, is 4.6 MiB.
  Arguments model = {"model.layers=24",    "model.width=64",  "data.global_batch=4",
                     "data.micro_batch=1", "model.context=8", "model.vocab=256"};
  const std::string whole = bits_of(train(runs, tiny(1, model)));
  model.push_back("memory.limit_mb=4");
  Arguments words = {"train"};
  const Arguments settings = tiny(4, model);
  words.insert(words.end(), settings.begin(), settings.end());
  words.insert(words.end(), {"--set", "run.dir=" + runs.path()});
  const CommandResult refused = lockstep(words);
  EXPECT_EQ(refused.exit_code, 7);
  EXPECT_NE(refused.err.find("MiB of parameters: memory.limit_mb allows 4.0 MiB"),
            std::string::npos)
      << refused.err;
  model.insert(model.end(),
               {"parallel.shard=zero3", "memory.offload=disk", "memory.recompute=block"});
  EXPECT_EQ(bits_of(train(runs, tiny(4, model))), whole);
}

TEST(ShardingOfARun, WhatDoesNotFitIsToldWithWhatDoes) {
  const auto refused = [](const Arguments& settings) {
    Arguments words = {"train"};
    const Arguments all = tiny(3, settings);
    words.insert(words.end(), all.begin(), all.end());
    const CommandResult result = lockstep(words);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    return result.err;
  };
  EXPECT_NE(refused({"parallel.replicas=3"}).find("every rank is a replica"), std::string::npos);
  EXPECT_NE(refused({"parallel.shard=zero1", "parallel.replicas=2"}).find("do not divide 3 ranks"),
            std::string::npos);
  EXPECT_NE(refused({"parallel.prefetch=2"}).find("has no effect"), std::string::npos);
  EXPECT_NE(refused({"parallel.shard=zero2", "parallel.reshard_after_forward=never"})
                .find("has no effect"),
            std::string::npos);
  EXPECT_NE(refused({"memory.offload_kinds=optimizer"}).find("has no effect"), std::string::npos);
  EXPECT_NE(refused({"memory.offload=disk", "memory.offload_kinds=parameters"})
                .find("parallel.shard=zero3"),
            std::string::npos);
  EXPECT_NE(refused({"memory.offload=disk", "memory.offload_kinds=moments"})
                .find("\"moments\" is no kind"),
            std::string::npos);
  EXPECT_NE(refused({"parallel.shard=zero4"}).find("Did you mean"), std::string::npos);
}

TEST(OffloadOfARun, AFolderThatIsNotThereEndsItBeforeItTrains) {
  const TempFolder runs;
  Arguments words = {"train"};
  const Arguments all = tiny(2, {"memory.offload=disk", "memory.offload_dir=" + runs.file("none"),
                                 "run.dir=" + runs.path()});
  words.insert(words.end(), all.begin(), all.end());
  const CommandResult result = lockstep(words);
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_NE(result.err.find(runs.file("none")), std::string::npos) << result.err;
}

}  // namespace
}  // namespace lockstep::testing
