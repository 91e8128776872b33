// Runs that go on: after a kill, a request to stop, or a failure, on the same layout or another.

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/command/interrupted.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> command(const std::vector<std::string>& words,
                                 const std::vector<std::string>& more = {}) {
  std::vector<std::string> all = {"train"};
  all.insert(all.end(), words.begin(), words.end());
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::vector<std::string> started(std::vector<std::string> words) {
  words.insert(words.begin(), "lockstep");
  return words;
}

const Unbroken& whole() {
  static const Unbroken run = unbroken_run();
  return run;
}

nlohmann::json summary_of(const CommandResult& result) {
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return nlohmann::json::parse(result.out, nullptr, /*allow_exceptions=*/false);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// The complete ones.
std::vector<std::string> checkpoints_in(const std::string& run) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run + "/checkpoints", error)) {
    const std::string name = entry.path().filename();
    if (name.find(".tmp-") == std::string::npos) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// A layout each; long_test.cpp has fifty.
class Interrupted : public ::testing::TestWithParam<int> {};
TEST_P(Interrupted, ARunEndsAsTheUnbrokenOne) {
  interrupt_and_resume(whole(), GetParam(), 20240501 + static_cast<uint64_t>(GetParam()));
}
INSTANTIATE_TEST_SUITE_P(Trials, Interrupted, ::testing::Range(0, 5));

TEST(Restart, AKilledRankIsStartedAgainFromTheNewestCheckpoint) {
  const TempFolder runs;
  Command job(started(command(
      small_run(runs), {"-n", "2", "--max-restarts", "1", "--json", "--set", "run.name=a run"})));
  ASSERT_TRUE(eventually([&] {
    return !checkpoints_in(run_in(runs)).empty() && steps_in(run_in(runs)) >= 6;
  })) << job.errors_so_far();
  ::kill(children_of(job.pid()).front(), SIGKILL);
  const CommandResult result = job.wait();
  EXPECT_EQ(summary_of(result)["param_digest"], whole().digest) << result.err;
  EXPECT_TRUE(contains(result.err, "restart 1 of 1")) << result.err;
  EXPECT_EQ(losses_in(run_in(runs)), whole().losses);
}

TEST(Restart, NeverBeginsAnew) {
  const TempFolder runs;
  Command job(started(command(
      small_run(runs), {"-n", "2", "--max-restarts", "1", "--json", "--set", "run.resume=never"})));
  ASSERT_TRUE(eventually([&] { return !checkpoints_in(run_in(runs)).empty(); }));
  ::kill(children_of(job.pid()).front(), SIGKILL);
  const auto summary = summary_of(job.wait());
  EXPECT_EQ(summary["param_digest"], whole().digest);
  EXPECT_EQ(losses_in(run_in(runs)), whole().losses);
}

/// Each rank is a `lockstep train` of its own there: the second start is told by its launcher that
/// it is one, and by the folder that it is the same job's.
TEST(Restart, UnderAnotherLauncherAJobFindsItsOwnRun) {
  const TempFolder runs;
  // Of another job, and newer.
  ASSERT_EQ(lockstep(command(small_run(runs), {"--set", "run.steps=8"})).exit_code, 0);
  std::vector<std::string> words = {"lockstep",       "run", "-n", "2",
                                    "--max-restarts", "1",   "--", beside("lockstep")};
  const auto training = command(small_run(runs), {"--set", "run.name=own"});
  words.insert(words.end(), training.begin(), training.end());
  Command job(words);
  const auto own = [&] {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(runs.path())) {
      if (entry.path().filename().string().starts_with("own-")) found.push_back(entry.path());
    }
    return found;
  };
  ASSERT_TRUE(eventually([&] { return own().size() == 1 && !checkpoints_in(own()[0]).empty(); }))
      << job.errors_so_far();
  ::kill(children_of(job.pid()).front(), SIGKILL);
  const CommandResult result = job.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  ASSERT_EQ(own().size(), 1u) << result.err;
  EXPECT_EQ(losses_in(own()[0]), whole().losses) << result.err;
  EXPECT_TRUE(contains(result.err, "goes on after step")) << result.err;
}

/// Asked to stop, it is not started again, whatever --max-restarts says.
TEST(Stop, SavesACheckpointAndIsNoFailure) {
  const TempFolder runs;
  Command job(started(
      command(small_run(runs), {"-n", "2", "--max-restarts", "3", "--set", "checkpoint.every=0"})));
  ASSERT_TRUE(eventually([&] { return steps_in(run_in(runs)) >= 3; })) << job.errors_so_far();
  ::kill(job.pid(), SIGTERM);
  const CommandResult stopped = job.wait();
  EXPECT_EQ(stopped.exit_code, 75) << stopped.err;
  EXPECT_FALSE(contains(stopped.err, "restart")) << stopped.err;
  const std::string run = run_in(runs);
  ASSERT_EQ(checkpoints_in(run).size(), 1u);
  EXPECT_TRUE(fs::exists(run + "/final.safetensors"));
  const std::string checkpoint = run + "/checkpoints/" + checkpoints_in(run)[0];

  // Two ranks saved it; nobody says how many go on.
  const CommandResult resumed = lockstep(command({"--resume", run, "--json"}));
  const nlohmann::json summary = summary_of(resumed);
  EXPECT_EQ(summary["param_digest"], whole().digest) << resumed.err;
  EXPECT_EQ(summary["ranks"].size(), 2u);
  EXPECT_TRUE(contains(resumed.err, "goes on after step")) << resumed.err;
  EXPECT_TRUE(fs::exists(run + "/resume_1/rank_0000.log"));

  // The checkpoint begins a run of its own, and leaves the first one alone.
  const std::string before = text_of(run + "/metrics.jsonl");
  const CommandResult branched = lockstep(
      command({"--resume", checkpoint, "--json", "-n", "1", "--set", "run.name=a branch"}));
  EXPECT_EQ(summary_of(branched)["param_digest"], whole().digest) << branched.err;
  EXPECT_EQ(text_of(run + "/metrics.jsonl"), before);
}

TEST(Stop, AStoppedRunThatIsAskedToSaveGoesOn) {
  const TempFolder runs;
  Command job(
      started(command(small_run(runs), {"-n", "2", "--json", "--set", "checkpoint.every=0"})));
  ASSERT_TRUE(eventually([&] { return steps_in(run_in(runs)) >= 2; })) << job.errors_so_far();
  ::kill(job.pid(), SIGUSR1);
  EXPECT_EQ(summary_of(job.wait())["param_digest"], whole().digest);
  EXPECT_EQ(checkpoints_in(run_in(runs)).size(), 1u);
}

TEST(Over, ARunThatHasMadeItsStepsSaysSoAndChangesNothing) {
  const TempFolder runs;
  const std::string digest = train(runs, small_run(runs))["param_digest"];
  const std::string run = run_in(runs);
  const auto at = fs::last_write_time(run + "/final.safetensors");
  const CommandResult over = lockstep(command({"--resume", run, "--json"}));
  EXPECT_EQ(summary_of(over)["param_digest"], digest);
  EXPECT_TRUE(contains(over.err, "is over")) << over.err;
  EXPECT_EQ(fs::last_write_time(run + "/final.safetensors"), at);
  EXPECT_FALSE(fs::exists(run + "/resume_1"));

  const CommandResult refused = lockstep(command({"--resume", run, "--set", "run.steps=34"}));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_TRUE(contains(refused.err, "run.steps = 34, but it was 30")) << refused.err;
  const CommandResult longer = lockstep(command(
      {"--resume", run, "--json", "--set", "run.steps=34", "--set", "run.may_change=run.steps"}));
  EXPECT_EQ(summary_of(longer)["steps"], 34) << longer.err;
  EXPECT_EQ(losses_in(run).size(), 34u);
  EXPECT_TRUE(fs::exists(run + "/config_before_step_30.json"));
}

TEST(Damage, AnOlderCheckpointIsTakenOnlyIfAsked) {
  const TempFolder runs;
  train(runs, small_run(runs));
  const std::string run = run_in(runs);
  const std::string part = run + "/checkpoints/step_00000030/part_0000.safetensors";
  {
    std::fstream file(part, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-2, std::ios::end);
    file.put('x');
  }
  std::vector<std::string> words = {"--resume",     run,     "--set",
                                    "run.steps=34", "--set", "run.may_change=run.steps"};
  const CommandResult refused = lockstep(command(words));
  EXPECT_EQ(refused.exit_code, 6) << refused.err;
  EXPECT_TRUE(contains(refused.err, "part_0000.safetensors")) << refused.err;
  const CommandResult resumed =
      lockstep(command(words, {"--set", "checkpoint.fall_back=true", "--json"}));
  EXPECT_EQ(summary_of(resumed)["steps"], 34);
  EXPECT_TRUE(contains(resumed.err, "Going on from an older one")) << resumed.err;
  EXPECT_EQ(losses_in(run).size(), 34u);
}

TEST(Lock, ASecondCommandOnARunIsRefused) {
  const TempFolder runs;
  Command job(started(command(small_run(runs), {"-n", "1", "--set", "run.steps=100000"})));
  ASSERT_TRUE(eventually([&] { return steps_in(run_in(runs)) >= 1; })) << job.errors_so_far();
  const std::string run = run_in(runs);
  const CommandResult second = lockstep(command({"--resume", run}));
  EXPECT_EQ(second.exit_code, 3) << second.err;
  EXPECT_TRUE(contains(second.err, "process " + std::to_string(job.pid()))) << second.err;
  ::kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait().exit_code, 75);
  EXPECT_FALSE(fs::exists(run + "/lock"));
}

}  // namespace
}  // namespace lockstep::testing
