#include "lockstep/cli/train_arguments.h"

#include "lockstep/base/str.h"
#include "lockstep/cli/arguments.h"
#include "lockstep/plan/train_config.h"

namespace lockstep::cli {

bool parse_train(const std::vector<std::string>& args, TrainArguments& parsed) {
  parsed.words = args;
  CLI::App app("Trains a model on N ranks; the result does not depend on N.", "lockstep train");
  app.add_option("CONFIG", parsed.sources.file, "settings, a TOML file");
  app.add_option("--preset", parsed.sources.preset,
                 "settings to start from: " + base::joined(plan::preset_names(), " or "));
  const CLI::Option* ranks =
      add_ranks(app, parsed.ranks,
                "ranks (default 1, or those that saved what --resume names; under mpirun, srun or "
                "torchrun those that it started)");
  app.add_option("--set", parsed.sources.sets, "SECTION.KEY=VALUE, over all other settings")
      ->allow_extra_args(false)
      ->take_all();
  app.add_option("--topology", parsed.topology,
                 "warn of a layout that does not fit the hosts and links of this TOML file");
  app.add_flag("--json", parsed.json, "one object on stdout at the end");
  const auto sets = [&parsed](const std::string& key) {
    return [&parsed, key](const std::string& value) {
      parsed.sources.sets.push_back(key + "=" + value);
    };
  };
  app.add_option_function<std::string>(
      "--resume", sets("run.resume"),
      "go on with this run, in its folder, from its newest checkpoint; or begin a new run at this "
      "checkpoint. Without CONFIG and --preset the settings are its own");
  app.add_option_function<std::string>(
      "--from", sets("run.from"),
      "begin with the weights of this run, checkpoint, file or Hugging Face folder");
  app.add_option("--max-restarts", parsed.max_restarts,
                 "start all ranks again after a failure, up to K times, from the newest checkpoint")
      ->check(CLI::Range(0, 1'000'000));
  app.add_flag_callback(
      "--profile", [&] { parsed.sources.sets.push_back("log.profile=true"); },
      "time, operations and bytes of each layer, at the end and in profile.json");
  app.add_option_function<std::string>(
      "--synthetic-compute", sets("run.synthetic_compute"),
      "milliseconds slept in the place of computing: FORWARD,BACKWARD,WEIGHT");
  app.add_flag("--print-config", parsed.print_config,
               "print every setting with its origin, and stop");
  app.add_flag("--dry-run", parsed.dry_run, "check everything, print the plan, and stop");
  if (!parse_arguments(app, args)) return false;
  parsed.ranks_given = ranks->count() > 0;
  return true;
}

}  // namespace lockstep::cli
