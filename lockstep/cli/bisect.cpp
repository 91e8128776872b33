#include "lockstep/cli/bisect.h"

#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/base/planted_fault.h"
#include "lockstep/base/str.h"
#include "lockstep/cli/arguments.h"
#include "lockstep/cli/bisect_search.h"
#include "lockstep/cli/bisect_text.h"
#include "lockstep/cli/joined.h"

namespace lockstep::cli {
namespace {

struct BisectArguments {
  std::vector<std::string> runs;
  ReplayOptions replays;
  BisectOptions search;
  bool replay = false;
  int64_t from = -1;
  int64_t to = -1;
  bool json = false;
};

/// False: only help was wanted.
bool parse(const std::vector<std::string>& args, BisectArguments& parsed) {
  CLI::App app(
      "Finds the first step and tensor in which two runs differ: by what they have recorded, then "
      "by\nreplays from the newest state that both have shared. With --replay, whether one run "
      "comes to\nwhat it has recorded. Exit code 0: equal; 1: they differ.",
      "lockstep bisect");
  app.add_option("RUN", parsed.runs, "two run folders; with --replay one")->expected(0, 2);
  app.add_flag("--replay", parsed.replay, "compute a stretch of one run again, and compare");
  CLI::Option* const from =
      app.add_option("--from", parsed.from,
                     "replay: from the newest checkpoint at or before this step (default: the "
                     "newest with steps behind it)")
          ->check(CLI::NonNegativeNumber);
  CLI::Option* const to =
      app.add_option("--to", parsed.to, "replay: up to this step (default: the last)")
          ->check(CLI::PositiveNumber);
  const CLI::Option* const ranks = add_ranks(
      app, parsed.replays.ranks,
      "ranks of replays, data-parallel with the same sums (default: the run's own layout)");
  app.add_option("--ranks-limit", parsed.replays.most_ranks,
                 "most ranks that a replay may have (default 64)")
      ->check(CLI::PositiveNumber);
  app.add_option("--window", parsed.search.window,
                 "steps of which replays write down everything at once (default 2)")
      ->check(CLI::PositiveNumber);
  app.add_option("--keep", parsed.replays.keep,
                 "a new folder for what replays leave: logs, checkpoints, witnesses");
  app.add_flag("--json", parsed.json, "one object on stdout");
  app.add_option("--plant", parsed.search.fault_in_b,
                 "plant a fault of base/planted_fault.h in replays of the second run")
      ->group("For tests");
  if (!parse_arguments(app, args)) return false;
  const size_t wanted = parsed.replay ? 1 : 2;
  if (parsed.runs.size() != wanted) {
    throw UsageError(
        base::str("lockstep bisect: ", parsed.replay ? "which run?" : "which two runs?",
                  "\n  lockstep bisect RUN_A RUN_B, or lockstep bisect RUN --replay"));
  }
  if (!parsed.replay && from->count() + to->count() > 0) {
    throw UsageError(
        "--from and --to are of --replay: two runs show themselves where they differ.");
  }
  if (ranks->count() > 0 && parsed.replays.ranks < 1) {
    throw UsageError(base::str("-n ", parsed.replays.ranks, ": a replay has 1 rank or more."));
  }
  const std::string& fault = parsed.search.fault_in_b;
  if (!fault.empty() && base::fault_named(fault) == base::Fault::none) {
    throw UsageError(base::str("--plant ", fault, ": there is no such fault."));
  }
  return true;
}

void print(const BisectArguments& args, const std::string& text, const nlohmann::json& json) {
  if (args.json) std::printf("%s\n", json.dump().c_str());
  std::fputs(text.c_str(), args.json ? stderr : stdout);
}

int replay_run(const BisectArguments& args, Replays& replays) {
  const RunRecord run = read_run(args.runs[0]);
  const Reproduction found = replay(run, args.from, args.to, replays);
  print(args, text_of(found, run), to_json(found, run));
  return found.reproduces() ? 0 : kRunsDiffer;
}

}  // namespace

int bisect_command(const std::vector<std::string>& args) {
  BisectArguments parsed;
  if (!parse(args, parsed)) return 0;
  if (joined_place()) {
    throw UsageError(
        "lockstep bisect starts its ranks itself, and here another launcher has started them.\n"
        "  Run it outside of mpirun, srun and torchrun.");
  }
  const WorkFolder work("bisect", parsed.replays.keep);
  Replays replays(work, parsed.replays);
  if (parsed.replay) return replay_run(parsed, replays);

  const RunRecord a = read_run(parsed.runs[0]);
  const RunRecord b = read_run(parsed.runs[1]);
  parsed.search.say = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  const Bisection found = bisect(a, b, replays, parsed.search);
  print(parsed, text_of(found, a, b), to_json(found, a, b));
  return found.outcome == Bisection::Outcome::equal ? 0 : kRunsDiffer;
}

}  // namespace lockstep::cli
