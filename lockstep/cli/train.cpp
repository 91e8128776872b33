#include "lockstep/cli/train.h"

#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/cli/arguments.h"
#include "lockstep/cli/config.h"
#include "lockstep/cli/job.h"
#include "lockstep/cli/machine.h"
#include "lockstep/cli/run_folder.h"
#include "lockstep/cli/run_plan.h"

namespace lockstep::cli {
namespace {

struct TrainArguments {
  ConfigSources sources;
  int ranks = 1;
  bool json = false;
  bool print_config = false;
  bool dry_run = false;
};

/// False: only help was wanted.
bool parse(const std::vector<std::string>& args, TrainArguments& parsed) {
  CLI::App app("Trains a model on N ranks; the result does not depend on N.", "lockstep train");
  app.add_option("CONFIG", parsed.sources.file, "settings, a TOML file");
  app.add_option("--preset", parsed.sources.preset,
                 "settings to start from: " + base::joined(plan::preset_names(), " or "));
  add_ranks(app, parsed.ranks, "ranks (default 1)");
  app.add_option("--set", parsed.sources.sets, "SECTION.KEY=VALUE, over all other settings")
      ->allow_extra_args(false)
      ->take_all();
  app.add_flag("--json", parsed.json, "one object on stdout at the end");
  app.add_flag("--print-config", parsed.print_config,
               "print every setting with its origin, and stop");
  app.add_flag("--dry-run", parsed.dry_run, "check everything, print the plan, and stop");
  if (!parse_arguments(app, args)) return false;
  if (parsed.sources.file.empty() && parsed.sources.preset.empty()) {
    throw UsageError(
        "lockstep train: what should it train?\n"
        "  lockstep train --preset nano, or lockstep train CONFIG.toml");
  }
  return true;
}

int dry_run(const TrainArguments& args, const plan::TrainConfig& config, const RunData& data) {
  const std::string worker = worker_program();
  if (args.json) {
    std::printf("%s\n", run_plan_json(config, args.ranks, data).dump().c_str());
  } else {
    std::printf("%sworker    %s\nNothing was started.\n",
                run_plan_text(config, args.ranks, data).c_str(), worker.c_str());
  }
  return 0;
}

}  // namespace

int train_command(const std::vector<std::string>& args) {
  TrainArguments parsed;
  if (!parse(args, parsed)) return 0;
  const ResolvedConfig resolved = resolve_config(parsed.sources);
  const plan::TrainConfig& config = resolved.config;
  if (parsed.print_config) {
    std::fputs(config_as_toml(resolved).c_str(), stdout);
    return 0;
  }
  plan::check(config, parsed.ranks);
  require_memory(config, parsed.ranks);
  const RunData data = open_data(config);
  if (parsed.dry_run) return dry_run(parsed, config, data);

  const std::string worker = worker_program();
  const std::string folder = create_run_folder(resolved);
  std::fprintf(stderr, "run %s, %d %s\n", folder.c_str(), parsed.ranks,
               parsed.ranks == 1 ? "rank" : "ranks");
  const int code = run_and_report({.command = {worker, "train", folder},
                                   .ranks = parsed.ranks,
                                   .engine = config.comm.engine,
                                   .timeout_s = config.comm.timeout_s,
                                   .log_folder = folder,
                                   .stop_notice = "stopping after the step at hand; a second "
                                                  "Ctrl-C stops at once"});
  remove_unfinished_files(folder);
  if (code == 0 && parsed.json) {
    // Read back rather than passed on: what a program gets is what the run folder keeps.
    const std::string summary = read_file(folder + "/summary.json");
    std::printf("%s%s", summary.c_str(), summary.ends_with('\n') ? "" : "\n");
  }
  return code;
}

}  // namespace lockstep::cli
