#include "lockstep/cli/train.h"

#include <cstdio>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/own_program.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/cli/algorithm_file.h"
#include "lockstep/cli/config.h"
#include "lockstep/cli/job.h"
#include "lockstep/cli/joined.h"
#include "lockstep/cli/machine.h"
#include "lockstep/cli/own_run.h"
#include "lockstep/cli/resume.h"
#include "lockstep/cli/run_folder.h"
#include "lockstep/cli/run_lock.h"
#include "lockstep/cli/run_placement.h"
#include "lockstep/cli/run_plan.h"
#include "lockstep/cli/schedule_file.h"
#include "lockstep/cli/train_arguments.h"
#include "lockstep/launch/mpi_start.h"
#include "lockstep/launch/region_handover.h"

namespace lockstep::cli {
namespace {

int dry_run(const TrainArguments& args, const plan::TrainConfig& config, const RunData& data) {
  const std::string worker = worker_program(config.run.worker);
  if (args.json) {
    std::printf("%s\n", run_plan_json(config, args.ranks, data).dump().c_str());
  } else {
    std::printf("%sworker    %s\nNothing was started.\n",
                run_plan_text(config, args.ranks, data).c_str(), worker.c_str());
  }
  return 0;
}

void require_joinable(const TrainArguments& args, const plan::TrainConfig& config,
                      const launch::Place& place) {
  const char* launcher = launch::name_of(place.launcher);
  if (args.ranks_given && args.ranks != place.world_size) {
    throw UsageError(base::str("-n ", args.ranks, ", but ", launcher, " has started ",
                               place.world_size, " ranks.\n  Leave -n out: they are the ranks."));
  }
  if (config.comm.engine == "threads") {
    throw UsageError(base::str("comm.engine=\"threads\" runs all ranks in one process, but ",
                               launcher, " has started ", place.world_size,
                               " processes.\n  Use --set comm.engine=shm."));
  }
  if (config.comm.engine == "mpi") {
    launch::require_mpi_here(launch::own_variable);
  } else {
    launch::require_one_host(place, config.comm.engine);
  }
}

/// Who restarts ranks must have started them, and outlive them.
void require_restartable(const TrainArguments& args, const plan::TrainConfig& config,
                         const std::optional<launch::Place>& place) {
  if (args.max_restarts == 0 || (!place && config.comm.engine != "mpi")) return;
  throw UsageError(base::str(
      "--max-restarts starts ranks again that `lockstep train -n N` has started; these are ",
      place ? launch::name_of(place->launcher) : "mpirun",
      "'s, which ends all of them when one dies.\n  Start it again with --resume RUN "
      "(docs/concepts/resume.md)",
      place ? "." : ", or use --set comm.engine=shm."));
}

void say(const std::string& line) {
  if (!line.empty()) std::fprintf(stderr, "%s\n", line.c_str());
}

/// 0 if they hold unequal numbers of ranks.
int hosts_of(const launch::Place& place) {
  return place.world_size % place.local_size == 0 ? place.world_size / place.local_size : 0;
}

/// Starts this command again, as the ranks of an MPI.
int run_by_mpi(const TrainArguments& args) {
  std::vector<std::string> command = {base::own_program(), "train"};
  command.insert(command.end(), args.words.begin(), args.words.end());
  return launch::run_by_mpi(args.ranks, command, launch::FirstStop::lets_them_save);
}

int run_ranks(const JoinedRun& run, int ranks, const launch::Share& share, int max_restarts) {
  launch::JobOptions job;
  job.command = {run.worker, "train"};
  if (!run.folder.empty()) job.command.push_back(run.folder);  // else rank 0 says
  job.ranks = ranks;
  job.engine = run.engine;
  job.timeout_s = run.timeout_s;
  job.log_folder = run.logs;
  job.max_restarts = max_restarts;
  if (share.first_rank == 0) {
    job.stop_notice = "stopping after the step at hand; a second Ctrl-C stops at once";
  }
  job.share = share;
  return run_and_report(job);
}

/// The settings, and what the run goes on from.
Start start_of(const TrainArguments& args) {
  Start start = resolve_start(args.sources);
  const bool is_new = !start.from && start.resolved.config.run.from.empty();
  if (args.sources.file.empty() && args.sources.preset.empty() && is_new) {
    throw UsageError(
        "lockstep train: what should it train?\n"
        "  lockstep train --preset nano, or lockstep train CONFIG.toml\n"
        "  lockstep train --resume RUN goes on with one, --from MODEL begins with its weights.");
  }
  return start;
}

/// The same; where a launcher has started the job again, its own run goes on.
Start start_of_job(TrainArguments& args) {
  Start start = start_of(args);
  if (start.from || start.resolved.config.run.resume != "auto") return start;
  const std::string own = run_of_job(start.resolved.config, own_job());
  if (own.empty()) return start;
  args.sources.sets.push_back("run.resume=" + own);
  return start_of(args);
}

/// What a program gets is what the run folder keeps: read back rather than passed on.
void print_summary(const std::string& folder) {
  const std::string summary = read_file(folder + "/summary.json");
  std::printf("%s%s", summary.c_str(), summary.ends_with('\n') ? "" : "\n");
}

/// The folder of the run, ready for its ranks, and the one of their logs. `lock` is the caller's.
JoinedRun prepare_folder(const Start& start, int ranks, std::unique_ptr<RunLock>& lock) {
  const bool goes_on = start.from && !start.from->run_folder.empty();
  JoinedRun run;
  run.folder = goes_on ? start.from->run_folder : create_run_folder(start.resolved);
  lock = std::make_unique<RunLock>(run.folder);
  remember_job(run.folder, own_job());
  run.logs = run.folder;
  if (goes_on) {
    remove_unfinished_files(run.folder);
    replace_config(run.folder, start.resolved, start.from->step);
    run.logs = new_log_folder(run.folder);
  }
  const std::string how =
      start.from ? " " + describe(*start.from, start.resolved.config) : std::string();
  std::fprintf(stderr, "run %s%s, %d %s\n", run.folder.c_str(), how.c_str(), ranks,
               ranks == 1 ? "rank" : "ranks");
  return run;
}

int say_over(const TrainArguments& args, const Start& start) {
  std::fprintf(stderr,
               "run %s is over: it has made its %lld steps.\n  More of them: --set "
               "run.steps=N --set run.may_change=run.steps\n",
               start.from->run_folder.c_str(),
               static_cast<long long>(start.resolved.config.run.steps));
  if (args.json) print_summary(start.from->run_folder);
  return 0;
}

/// Rank 0 of a job: all that is said and checked once. `place`: where another launcher put it.
int lead(TrainArguments args, const std::optional<launch::Place>& place) {
  Start start = start_of_job(args);
  const plan::TrainConfig& config = start.resolved.config;
  if (args.print_config) {
    std::fputs(config_as_toml(start.resolved).c_str(), stdout);
    return 0;
  }
  if (place) {
    require_joinable(args, config, *place);
    args.ranks = place->world_size;
  } else if (!args.ranks_given && start.from && start.from->world > 0) {
    args.ranks = start.from->world;
  }
  require_restartable(args, config, place);
  read_schedule(start.resolved.config);
  plan::check(config, args.ranks);
  if (!start.from && !config.run.from.empty()) {
    checkpoints::require_same_model(*checkpoints::open_weights(config.run.from), config,
                                    plan::resolved_vocab(config));
  }
  const int hosts = place ? hosts_of(*place) : 1;
  const std::string algorithms = follow_table(start.resolved.config, args.ranks, hosts);
  const std::string misplaced = placement_warnings(
      config, args.ranks, {.file = args.topology, .hosts = hosts, .joined = place.has_value()});
  // What a model of one's own needs, and reads, its program knows.
  const bool ours = config.run.worker.empty() && config.run.synthetic_compute.empty();
  if (ours) require_memory(config, args.ranks);
  const RunData data = ours ? open_data(config) : RunData{};
  if (args.dry_run) {
    say(algorithms);
    say(misplaced);
    return dry_run(args, config, data);
  }
  if (start.from && is_over(*start.from, config)) {
    if (place) refuse_joined(*place, "the run is over.", 0);
    return say_over(args, start);
  }

  const std::string worker = worker_program(config.run.worker);  // missing: said before all else
  if (config.comm.engine == "mpi" && !place && args.ranks > 1) return run_by_mpi(args);
  std::unique_ptr<RunLock> lock;
  JoinedRun run = prepare_folder(start, args.ranks, lock);
  run.worker = worker;
  run.engine = config.comm.engine;
  run.timeout_s = config.comm.timeout_s;
  say(algorithms);
  say(misplaced);
  const launch::Share share = place ? start_joined(*place, run) : launch::Share{};
  const int code = run_ranks(run, place ? 1 : args.ranks, share, place ? 0 : args.max_restarts);
  remove_unfinished_files(run.folder);
  if (code == 0 && args.json) print_summary(run.folder);
  return code;
}

/// Any other rank that another launcher started.
int follow(const TrainArguments& args, const launch::Place& place) {
  if (args.print_config || args.dry_run) return 0;  // rank 0 says it
  JoinedRun run;
  try {
    const launch::Share share = follow_joined(place, run);
    return run_ranks(run, 1, share, 0);
  } catch (const Error& error) {
    if (error.exit_code() == 0) return 0;  // there is nothing to do, says rank 0
    throw;
  }
}

/// The first rank of a host where rank 0 is not.
int lead_host(const TrainArguments& args, const launch::Place& place) {
  if (args.print_config || args.dry_run) return 0;
  const Start start = start_of(args);
  const plan::TrainConfig& config = start.resolved.config;
  require_joinable(args, config, place);
  if (start.from && is_over(*start.from, config)) {
    refuse_joined(place, "the run is over.", 0);
    return 0;
  }
  const JoinedRun run{.folder = "",
                      .logs = "",
                      .worker = worker_program(config.run.worker),
                      .engine = config.comm.engine,
                      .timeout_s = config.comm.timeout_s};
  return run_ranks(run, 1, start_joined(place, run), 0);
}

}  // namespace

int train_command(const std::vector<std::string>& args) {
  TrainArguments parsed;
  if (!parse_train(args, parsed)) return 0;
  const std::optional<launch::Place> place = joined_place();
  if (!place) return lead(parsed, place);
  if (place->local_rank != 0) return follow(parsed, *place);
  try {
    return place->rank == 0 ? lead(parsed, place) : lead_host(parsed, *place);
  } catch (const Error& error) {
    refuse_joined(*place, error.what(), error.exit_code());
    throw;
  }
}

}  // namespace lockstep::cli
