#include "lockstep/cli/checkpoint.h"

#include <cstdio>
#include <iostream>
#include <limits>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/checkpoint/reader.h"
#include "lockstep/checkpoint/reshard.h"
#include "lockstep/cli/arguments.h"
#include "lockstep/cli/checkpoint_diff.h"
#include "lockstep/cli/checkpoint_export.h"
#include "lockstep/cli/checkpoint_import.h"
#include "lockstep/cli/checkpoint_look.h"
#include "lockstep/cli/run_lock.h"

namespace lockstep::cli {
namespace {

int checkpoint_verify(const std::vector<std::string>& args) {
  std::string path;
  CLI::App app("Reads every byte and compares it with the digests in the manifest.",
               "lockstep checkpoint verify");
  app.add_option("CHECKPOINT|RUN", path, "a checkpoint, or a run: its newest one")->required();
  if (!parse_arguments(app, args)) return 0;

  const std::string folder = checkpoints::checkpoint_at(path);
  const checkpoints::Reader reader(folder);
  reader.verify();
  const checkpoints::Manifest& manifest = reader.manifest();
  std::cout << folder << " is whole: step " << manifest.step << ", " << manifest.files.size()
            << (manifest.files.size() == 1 ? " file" : " files") << ", "
            << base::bytes_text(manifest.bytes()) << ", digest " << manifest.param_digest << "\n";
  return 0;
}

int checkpoint_reshard(const std::vector<std::string>& args) {
  std::string from, to;
  int files = 1;
  CLI::App app("The same checkpoint in N files of whole tensors. Any layout goes on from either.",
               "lockstep checkpoint reshard");
  app.add_option("FROM", from, "a checkpoint, or a run: its newest one")->required();
  app.add_option("TO", to, "the folder to make")->required();
  app.add_option("-n,--files", files, "part files")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  if (!parse_arguments(app, args)) return 0;

  const std::string folder = checkpoints::checkpoint_at(from);
  const checkpoints::Manifest manifest = checkpoints::reshard(folder, to, files);
  std::cout << folder << " -> " << to << ": step " << manifest.step << " in " << files
            << (files == 1 ? " file" : " files") << ", " << base::bytes_text(manifest.bytes())
            << ", digest " << manifest.param_digest << "\n";
  return 0;
}

int checkpoint_prune(const std::vector<std::string>& args) {
  std::string run;
  int64_t keep = 0, keep_every = 0;
  bool dry_run = false;
  CLI::App app("Removes a run's older checkpoints.", "lockstep checkpoint prune");
  app.add_option("RUN", run, "a run folder")->required();
  app.add_option("--keep", keep, "how many of the newest stay")
      ->required()
      ->check(CLI::Range(int64_t{1}, std::numeric_limits<int64_t>::max()));
  app.add_option("--keep-every", keep_every, "those of steps that are a multiple of it stay, too")
      ->check(CLI::Range(int64_t{0}, std::numeric_limits<int64_t>::max()));
  app.add_flag("--dry-run", dry_run, "say what would go, and leave it");
  if (!parse_arguments(app, args)) return 0;

  if (checkpoints::is_checkpoint(run)) {
    throw UsageError(base::str(run, " is a checkpoint. Give the folder of its run."));
  }
  // The newest must be one that a run can go on from: else the older ones are all there is.
  const checkpoints::Reader newest(checkpoints::checkpoint_at(run));
  std::optional<RunLock> lock;  // a run that is under way prunes for itself
  if (!dry_run) lock.emplace(run);
  const auto removed = dry_run ? checkpoints::to_prune(run, keep, keep_every)
                               : checkpoints::prune(run, keep, keep_every);
  for (const checkpoints::Found& found : removed) {
    std::cout << (dry_run ? "would remove " : "removed ") << found.folder << "\n";
  }
  if (removed.empty()) std::cout << "nothing to remove in " << run << "\n";
  return 0;
}

struct Action {
  std::string name;
  std::string summary;
  int (*run)(const std::vector<std::string>& args);
};

const std::vector<Action>& actions() {
  static const std::vector<Action> all = {
      {"ls", "a run's checkpoints", checkpoint_ls},
      {"inspect", "what is in a checkpoint, and of which run it is", checkpoint_inspect},
      {"verify", "whether every byte is as it was saved", checkpoint_verify},
      {"diff", "what differs between two checkpoints or models", checkpoint_diff},
      {"reshard", "the same checkpoint in another number of files", checkpoint_reshard},
      {"import", "a model of another program as one of Lockstep", checkpoint_import},
      {"export", "a model of Lockstep for other programs", checkpoint_export},
      {"prune", "remove a run's older checkpoints", checkpoint_prune},
  };
  return all;
}

std::string usage() {
  std::string text =
      "lockstep checkpoint: look at checkpoints, prove them, compare them, bring them into other "
      "files.\n\n  lockstep checkpoint ls runs/nano-7f3a\n\nWhat it does (each knows --help):\n";
  for (const Action& action : actions()) {
    text += "  " + action.name + std::string(12 - action.name.size(), ' ') + action.summary + "\n";
  }
  return text;
}

}  // namespace

int checkpoint_command(const std::vector<std::string>& args) {
  if (args.empty()) {
    std::fputs(usage().c_str(), stderr);
    return UsageError("").exit_code();
  }
  const std::string& name = args.front();
  if (name == "--help" || name == "-h") {
    std::fputs(usage().c_str(), stdout);
    return 0;
  }
  std::vector<std::string> names;
  for (const Action& action : actions()) {
    if (action.name == name) return action.run({args.begin() + 1, args.end()});
    names.push_back(action.name);
  }
  const std::string near = base::nearest(name, names);
  throw UsageError(base::str("lockstep checkpoint: there is no ", name, "; there is ",
                             base::joined(names), ".",
                             near.empty() ? "" : base::str("\n  Did you mean ", near, "?")));
}

}  // namespace lockstep::cli
