#include "lockstep/cli/train.h"

#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/base/own_program.h"
#include "lockstep/base/str.h"
#include "lockstep/cli/algorithm_file.h"
#include "lockstep/cli/arguments.h"
#include "lockstep/cli/config.h"
#include "lockstep/cli/job.h"
#include "lockstep/cli/joined.h"
#include "lockstep/cli/machine.h"
#include "lockstep/cli/run_folder.h"
#include "lockstep/cli/run_placement.h"
#include "lockstep/cli/run_plan.h"
#include "lockstep/cli/schedule_file.h"
#include "lockstep/launch/mpi_start.h"
#include "lockstep/launch/region_handover.h"

namespace lockstep::cli {
namespace {

struct TrainArguments {
  ConfigSources sources;
  std::string topology;  // a file; empty: what is seen from here
  int ranks = 1;
  bool ranks_given = false;
  bool json = false;
  bool print_config = false;
  bool dry_run = false;
  std::vector<std::string> words;  // as they came
};

/// False: only help was wanted.
bool parse(const std::vector<std::string>& args, TrainArguments& parsed) {
  CLI::App app("Trains a model on N ranks; the result does not depend on N.", "lockstep train");
  app.add_option("CONFIG", parsed.sources.file, "settings, a TOML file");
  app.add_option("--preset", parsed.sources.preset,
                 "settings to start from: " + base::joined(plan::preset_names(), " or "));
  const CLI::Option* ranks = add_ranks(
      app, parsed.ranks, "ranks (default 1; under mpirun, srun or torchrun those that it started)");
  app.add_option("--set", parsed.sources.sets, "SECTION.KEY=VALUE, over all other settings")
      ->allow_extra_args(false)
      ->take_all();
  app.add_option("--topology", parsed.topology,
                 "warn of a layout that does not fit the hosts and links of this TOML file");
  app.add_flag("--json", parsed.json, "one object on stdout at the end");
  app.add_flag_callback(
      "--profile", [&] { parsed.sources.sets.push_back("log.profile=true"); },
      "time, operations and bytes of each layer, at the end and in profile.json");
  app.add_option_function<std::string>(
      "--synthetic-compute",
      [&](const std::string& times) {
        parsed.sources.sets.push_back("run.synthetic_compute=" + times);
      },
      "milliseconds slept in the place of computing: FORWARD,BACKWARD,WEIGHT");
  app.add_flag("--print-config", parsed.print_config,
               "print every setting with its origin, and stop");
  app.add_flag("--dry-run", parsed.dry_run, "check everything, print the plan, and stop");
  if (!parse_arguments(app, args)) return false;
  parsed.ranks_given = ranks->count() > 0;
  if (parsed.sources.file.empty() && parsed.sources.preset.empty()) {
    throw UsageError(
        "lockstep train: what should it train?\n"
        "  lockstep train --preset nano, or lockstep train CONFIG.toml");
  }
  return true;
}

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

int run_ranks(const JoinedRun& run, int ranks, const launch::Share& share) {
  launch::JobOptions job;
  job.command = {run.worker, "train"};
  if (!run.folder.empty()) job.command.push_back(run.folder);  // else rank 0 says
  job.ranks = ranks;
  job.engine = run.engine;
  job.timeout_s = run.timeout_s;
  job.log_folder = run.folder;
  if (share.first_rank == 0) {
    job.stop_notice = "stopping after the step at hand; a second Ctrl-C stops at once";
  }
  job.share = share;
  return run_and_report(job);
}

/// Rank 0 of a job: all that is said and checked once. `place`: where another launcher put it.
int lead(TrainArguments args, const std::optional<launch::Place>& place) {
  ResolvedConfig resolved = resolve_config(args.sources);
  const plan::TrainConfig& config = resolved.config;
  if (args.print_config) {
    std::fputs(config_as_toml(resolved).c_str(), stdout);
    return 0;
  }
  if (place) {
    require_joinable(args, config, *place);
    args.ranks = place->world_size;
  }
  read_schedule(resolved.config);
  plan::check(config, args.ranks);
  const int hosts = place ? hosts_of(*place) : 1;
  const std::string algorithms = follow_table(resolved.config, args.ranks, hosts);
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

  const std::string worker = worker_program(config.run.worker);  // missing: said before all else
  if (config.comm.engine == "mpi" && !place && args.ranks > 1) return run_by_mpi(args);
  const std::string folder = create_run_folder(resolved);
  std::fprintf(stderr, "run %s, %d %s\n", folder.c_str(), args.ranks,
               args.ranks == 1 ? "rank" : "ranks");
  say(algorithms);
  say(misplaced);
  const JoinedRun run{folder, worker, config.comm.engine, config.comm.timeout_s};
  const launch::Share share = place ? start_joined(*place, run) : launch::Share{};
  const int code = run_ranks(run, place ? 1 : args.ranks, share);
  remove_unfinished_files(folder);
  if (code == 0 && args.json) {
    // Read back rather than passed on: what a program gets is what the run folder keeps.
    const std::string summary = read_file(folder + "/summary.json");
    std::printf("%s%s", summary.c_str(), summary.ends_with('\n') ? "" : "\n");
  }
  return code;
}

/// Any other rank that another launcher started.
int follow(const TrainArguments& args, const launch::Place& place) {
  if (args.print_config || args.dry_run) return 0;  // rank 0 says it
  JoinedRun run;
  const launch::Share share = follow_joined(place, run);
  return run_ranks(run, 1, share);
}

/// The first rank of a host where rank 0 is not.
int lead_host(const TrainArguments& args, const launch::Place& place) {
  if (args.print_config || args.dry_run) return 0;
  const plan::TrainConfig config = resolve_config(args.sources).config;
  require_joinable(args, config, place);
  const JoinedRun run{"", worker_program(config.run.worker), config.comm.engine,
                      config.comm.timeout_s};
  return run_ranks(run, 1, start_joined(place, run));
}

}  // namespace

int train_command(const std::vector<std::string>& args) {
  TrainArguments parsed;
  parsed.words = args;
  if (!parse(args, parsed)) return 0;
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
