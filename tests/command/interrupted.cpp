#include "tests/command/interrupted.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSteps = 30;

std::vector<std::string> with(std::vector<std::string> words,
                              const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// Layouts of the same identity: -n and settings.
std::vector<std::vector<std::string>> layouts() {
  return {{"-n", "2"},
          {"-n", "3"},
          {"-n", "2", "--set", "parallel.shard=zero3"},
          {"-n", "2", "--set", "parallel.tensor=2"},
          {"-n", "2", "--set", "parallel.pipeline=2"}};
}

/// What resets them all where the settings are those of the run.
std::vector<std::string> plain() {
  return {"--set", "parallel.shard=none", "--set", "parallel.tensor=1",
          "--set", "parallel.pipeline=1"};
}

std::vector<std::string> unfinished_in(const std::string& run) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(run, error)) {
    if (entry.path().string().find(".tmp-") != std::string::npos) found.push_back(entry.path());
  }
  return found;
}

}  // namespace

std::vector<std::string> small_run(const TempFolder& runs) {
  std::vector<std::string> words = {"--preset", "nano"};
  for (const std::string setting :
       {"model.layers=2", "model.width=48", "model.context=48", "data.eval_batches=1",
        "numerics.grains=4", "numerics.tensor_grains=2", "log.eval_every=7",
        "checkpoint.every=4"}) {
    words.insert(words.end(), {"--set", setting});
  }
  return with(words,
              {"--set", "run.steps=" + std::to_string(kSteps), "--set", "run.dir=" + runs.path()});
}

Unbroken unbroken_run() {
  const TempFolder runs;
  const nlohmann::json summary = train(runs, with(small_run(runs), {"-n", "1"}));
  return {summary["param_digest"], losses_in(run_in(runs)), evaluations_in(run_in(runs))};
}

std::string run_in(const TempFolder& runs) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(runs.path(), error)) {
    if (fs::exists(entry.path() / "config.json", error)) return entry.path();
  }
  return "";
}

int64_t steps_in(const std::string& run) {
  std::ifstream metrics(run + "/metrics.jsonl");
  int64_t steps = 0;
  for (std::string line; std::getline(metrics, line);) {
    steps += line.find("\"loss\"") != std::string::npos ? 1 : 0;
  }
  return steps;
}

std::vector<double> losses_in(const std::string& run) {
  std::ifstream metrics(run + "/metrics.jsonl");
  std::vector<double> losses;
  for (std::string line; std::getline(metrics, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    EXPECT_TRUE(json.is_object()) << run << ": " << line;
    if (!json.is_object() || !json.contains("loss")) continue;
    EXPECT_EQ(json["step"].get<int64_t>(), std::ssize(losses) + 1) << run;
    losses.push_back(json["loss"]);
  }
  return losses;
}

std::vector<double> evaluations_in(const std::string& run) {
  std::ifstream metrics(run + "/metrics.jsonl");
  std::vector<double> losses;
  for (std::string line; std::getline(metrics, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && json.contains("val_loss")) losses.push_back(json["val_loss"]);
  }
  return losses;
}

void interrupt_and_resume(const Unbroken& whole, int trial, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&random](uint64_t n) { return random() % n; };
  const auto all = layouts();
  const auto& first = all[below(all.size())];
  const auto& second = all[static_cast<size_t>(trial) % all.size()];
  const auto stop_at = static_cast<int64_t>(below(kSteps - 6));
  const uint64_t how = below(3);
  SCOPED_TRACE("trial " + std::to_string(trial) + ", seed " + std::to_string(seed) +
               ", ended after step " + std::to_string(stop_at) + " by way " + std::to_string(how));

  const TempFolder runs;
  Command job(with(with({"lockstep", "train"}, small_run(runs)), first));
  ASSERT_TRUE(eventually([&] {
    return steps_in(run_in(runs)) >= stop_at && children_of(job.pid()).size() > 1;
  })) << job.errors_so_far();
  if (how == 0) ::kill(job.pid(), SIGKILL);
  if (how == 1) ::kill(children_of(job.pid()).back(), SIGKILL);
  if (how == 2) ::kill(job.pid(), SIGTERM);
  const CommandResult ended = job.wait();
  // It may have been over already; or not so far yet that it could save.
  const std::vector<std::vector<int>> codes = {{137}, {4}, {75, 143}};
  EXPECT_TRUE(ended.exit_code == 0 ||
              std::count(codes[how].begin(), codes[how].end(), ended.exit_code) == 1)
      << ended.exit_code << ": " << ended.err;

  const std::string run = run_in(runs);
  const CommandResult resumed =
      lockstep(with(with({"train", "--resume", run, "--json"}, plain()), second));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  const auto summary = nlohmann::json::parse(resumed.out, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(summary.is_object()) << resumed.out;
  EXPECT_EQ(summary["param_digest"], whole.digest) << resumed.err;
  EXPECT_EQ(losses_in(run), whole.losses);
  EXPECT_EQ(evaluations_in(run), whole.evaluations);
  EXPECT_EQ(unfinished_in(run), std::vector<std::string>{});
  EXPECT_FALSE(fs::exists(run + "/lock"));
}

}  // namespace lockstep::testing
