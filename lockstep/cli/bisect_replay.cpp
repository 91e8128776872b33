#include "lockstep/cli/bisect_replay.h"

#include <algorithm>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/cli/job.h"
#include "lockstep/cli/run_folder.h"
#include "lockstep/launch/job.h"
#include "lockstep/plan/resume_rules.h"
#include "lockstep/plan/twin_config.h"

namespace lockstep::cli {
namespace {

constexpr int kStoppedOnRequest = 75;

/// The settings of a replay up to step `to`.
plan::TrainConfig quiet(plan::TrainConfig config, const std::string& from, int64_t to) {
  const plan::TrainConfig usual;
  config.run.check_every = 0;  // ranks that drift are what is looked for
  config.run.resume = from.empty() ? "never" : from;
  // Kernels of here are what there is; whether they are the run's is said with the result.
  std::string& may_change = config.run.may_change;
  may_change += base::str(may_change.empty() ? "" : ",", plan::kIdentity);
  config.checkpoint = usual.checkpoint;
  config.checkpoint.every = to;  // where it ends, also where that is the run's last step
  config.checkpoint.async = false;
  config.memory.offload_dir = "";
  config.log = usual.log;
  config.log.every = std::max<int64_t>(1, to);
  config.log.eval_every = 0;
  config.log.tensorboard = false;
  config.log.digest_every = 1;
  config.data.eval_batches = std::min<int64_t>(config.data.eval_batches, 1);
  return config;
}

}  // namespace

struct Replays::Part {
  std::string name;
  plan::TrainConfig config;
  int ranks = 1;
  int64_t to = 0;
  std::string from;  // checkpoint; empty: the beginning
};

Replays::Replays(const WorkFolder& work, const ReplayOptions& options)
    : folder_(work.path()), options_(options) {}

plan::TrainConfig Replays::layout_of(const RunRecord& run, int64_t step, int& ranks) const {
  plan::TrainConfig config = run.settings_of(step);
  ranks = run.ranks_of(step);
  if (options_.ranks > 0 && options_.ranks != ranks) {
    ranks = options_.ranks;
    config = plan::alone_of(config);  // the same sums, in the plain layout
  }
  if (ranks > options_.most_ranks) {
    throw UsageError(base::str(run.folder, " ran on ", ranks, " ranks, and a replay may have ",
                               options_.most_ranks, " here.\n  All of them: --ranks-limit ", ranks,
                               "; fewer, in the plain layout with the same sums: -n N"));
  }
  if (config.comm.engine == "mpi") config.comm.engine = "shm";  // of the same layout
  plan::check(config, ranks);
  return config;
}

Replayed Replays::run(const std::string& name, const Stretch& stretch) {
  Replayed replayed;
  const RunRecord& run = *stretch.run;
  const int number = ++count_;
  replayed.witness = base::str(folder_, "/witness_", number, "_", name);
  replayed.checkpoint = stretch.from.folder;
  int64_t done = stretch.from.step;
  while (done < stretch.to) {
    Part part{
        .name = base::str("replay_", number, "_", name), .config = {}, .from = replayed.checkpoint};
    part.config = layout_of(run, done + 1, part.ranks);
    part.to = std::min(stretch.to, run.alike_until(done));
    replayed.checkpoint = run_part(part, stretch, replayed);
    replayed.ranks = part.ranks;
    done = part.to;
  }
  return replayed;
}

std::string Replays::run_part(const Part& part, const Stretch& stretch, Replayed& replayed) {
  plan::TrainConfig config = quiet(part.config, part.from, part.to);
  config.run.name = part.name;
  config.run.dir = folder_;
  const std::string folder = create_run_folder({.config = config, .origins = {}});
  launch::JobOptions job;
  job.command = {worker_program(config.run.worker), "train", folder, "--stop-after",
                 std::to_string(part.to)};
  if (stretch.witness_from >= 0) {
    job.command.insert(job.command.end(), {"--witness", replayed.witness, "--witness-from",
                                           std::to_string(stretch.witness_from)});
  }
  if (!stretch.fault.empty()) job.command.insert(job.command.end(), {"--plant", stretch.fault});
  job.ranks = part.ranks;
  job.engine = config.comm.engine;
  job.timeout_s = config.comm.timeout_s;
  job.log_folder = folder;
  launch::JobResult result;
  {
    const Hush hush(folder + "/console.log");
    result = launch::run_job(job);
  }
  const std::vector<checkpoints::Found> saved = checkpoints::complete_checkpoints(folder);
  const bool there = !saved.empty() && saved.front().step == part.to;
  if (result.exit_code != 0 && !(result.exit_code == kStoppedOnRequest && there)) {
    throw Error(base::str("the replay of ", stretch.run->folder, " up to step ", part.to,
                          result.error.empty() ? " was stopped." : " failed:\n", result.error),
                result.exit_code);
  }
  if (!there) throw StateError(base::str(folder, ": the replay has left no checkpoint."));
  for (const auto& [step, figures] : read_figures(folder + "/metrics.jsonl")) {
    replayed.steps[step] = figures;
  }
  replayed.identity = checkpoints::read_manifest(saved.front().folder).identity;
  return saved.front().folder;
}

}  // namespace lockstep::cli
