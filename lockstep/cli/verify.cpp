#include "lockstep/cli/verify.h"

#include <algorithm>
#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/base/planted_fault.h"
#include "lockstep/base/str.h"
#include "lockstep/cli/algorithm_file.h"
#include "lockstep/cli/arguments.h"
#include "lockstep/cli/config.h"
#include "lockstep/cli/job.h"
#include "lockstep/cli/joined.h"
#include "lockstep/cli/schedule_file.h"
#include "lockstep/cli/verify_runs.h"
#include "lockstep/plan/run_layout.h"
#include "lockstep/plan/twin_config.h"
#include "lockstep/report/equivalence.h"

namespace lockstep::cli {
namespace {

constexpr int kStoppedOnRequest = 75;
constexpr double kDropout = 0.1;  // of the twin of a run that has none

struct VerifyArguments {
  ConfigSources sources;
  int ranks = 1;
  int64_t steps = 3;
  bool json = false;
  bool exact = false;
  std::string keep;
  std::string plant;
};

/// False: only help was wanted.
bool parse(const std::vector<std::string>& args, VerifyArguments& parsed) {
  CLI::App app(
      "Trains a small twin of the run in its layout and on one rank alone, and compares every\n"
      "loss, gradient, norm, moment and parameter. Exit code 0: equal in bits or within rounding; "
      "8: broken.",
      "lockstep verify");
  app.add_option("CONFIG", parsed.sources.file, "settings, a TOML file");
  app.add_option("--preset", parsed.sources.preset,
                 "settings to start from: " + base::joined(plan::preset_names(), " or "));
  add_ranks(app, parsed.ranks, "ranks of the layout (default 1)");
  app.add_option("--set", parsed.sources.sets, "SECTION.KEY=VALUE, over all other settings")
      ->allow_extra_args(false)
      ->take_all();
  app.add_option("--steps", parsed.steps, "optimizer steps (default 3)")
      ->check(CLI::Range(int64_t{1}, int64_t{1000}));
  app.add_flag("--exact", parsed.exact, "whatever is not equal in bits is broken");
  app.add_flag("--json", parsed.json, "one object on stdout");
  app.add_option("--keep", parsed.keep,
                 "a new folder for what both runs leave: settings, logs, witnesses");
  app.add_option("--plant", parsed.plant, "plant a fault of base/planted_fault.h in the layout")
      ->group("For tests");
  if (!parse_arguments(app, args)) return false;
  if (parsed.sources.file.empty() && parsed.sources.preset.empty()) {
    throw UsageError(
        "lockstep verify: the layout of what?\n"
        "  lockstep verify --preset nano -n 2, or lockstep verify CONFIG.toml -n 2");
  }
  return true;
}

void require_fault(const std::string& name) {
  if (name.empty() || base::fault_named(name) != base::Fault::none) return;
  std::vector<std::string> names;
  std::string list;
  for (const base::FaultName& fault : base::kFaults) {
    names.emplace_back(fault.name);
    list += base::str("\n  ", fault.name, ": ", fault.what);
  }
  const std::string near = base::nearest(name, names);
  throw UsageError(base::str("--plant ", name, ": there is no such fault.",
                             near.empty() ? "" : base::str(" Did you mean ", near, "?"),
                             "\n  There are:", list));
}

/// What the layout of `config` is verified by.
plan::TrainConfig twin_for(const VerifyArguments& args, ResolvedConfig& resolved) {
  plan::TrainConfig& config = resolved.config;
  if (joined_place()) {
    throw UsageError(
        "lockstep verify starts its ranks itself, and here another launcher has started them.\n"
        "  Run it outside of mpirun, srun and torchrun.");
  }
  if (config.comm.engine == "mpi") {
    throw UsageError(
        "lockstep verify does not run over MPI yet.\n"
        "  The layout is the same over another engine: --set comm.engine=shm, or gloo");
  }
  read_schedule(config);
  plan::check(config, args.ranks);
  follow_table(config, args.ranks, 1);
  plan::TrainConfig twin = plan::twin_of(config, args.ranks);
  twin.run.steps = args.steps;
  const auto origin = resolved.origins.find("model.dropout");
  const bool asked = origin != resolved.origins.end() && origin->second.starts_with("--set");
  if (twin.model.dropout == 0 && !asked) twin.model.dropout = kDropout;
  return twin;
}

std::string layout_text(const plan::TrainConfig& config, int ranks) {
  const auto& parallel = config.parallel;
  std::string text = base::str(ranks, ranks == 1 ? " rank" : " ranks");
  const int data = plan::data_ranks(config, ranks) / static_cast<int>(parallel.context);
  if (data > 1) text += base::str(", data ", data);
  if (parallel.shard != "none") {
    text += base::str(" (", parallel.shard,
                      parallel.replicas > 1 ? base::str(", ", parallel.replicas, " replicas") : "",
                      ")");
  }
  if (plan::is_pipelined(config)) {
    text += base::str(", pipeline ", parallel.pipeline, " (", parallel.schedule,
                      parallel.chunks > 1 ? base::str(", ", parallel.chunks, " chunks") : "", ")");
  }
  if (parallel.context > 1) text += base::str(", context ", parallel.context);
  if (parallel.tensor > 1) {
    text += base::str(", tensor ", parallel.tensor, parallel.sequence ? " (sequence)" : "");
  }
  if (config.memory.recompute != "none") text += ", recompute " + config.memory.recompute;
  if (config.memory.offload != "none") text += ", offload " + config.memory.offload;
  return text + ", engine " + config.comm.engine;
}

std::string header_text(const plan::TrainConfig& twin, const plan::TrainConfig& run, int ranks) {
  const auto& model = twin.model;
  const plan::BatchPlan batch = plan::batch_of(twin);
  return base::str(
      "twin      ", model.family, ", ", model.layers, " layers, width ", model.width, ", ",
      model.heads, " heads, feed-forward ", plan::feed_forward_width(twin), ", context ",
      model.context, ", vocabulary ", model.vocab, "\n          dropout ", model.dropout,
      model.dropout != run.model.dropout
          ? base::str(" (the run has ", run.model.dropout, "; --set model.dropout=0 leaves it out)")
          : "",
      "\nlayout    ", layout_text(twin, ranks), "\nagainst   1 rank, of the same identity: B",
      batch.global_batch, " b", batch.micro_batch, " G", batch.grains, " M",
      batch.micro_batches_per_grain, " T", plan::tensor_grains_of(twin),
      batch.context_grains > 1 ? base::str(" C", batch.context_grains) : "", "; ", twin.run.steps,
      twin.run.steps == 1 ? " step\n" : " steps\n");
}

std::string verdict_text(report::Verdict verdict) {
  switch (verdict) {
    case report::Verdict::equal:
      return "equal in bits: in this layout the ranks compute what one rank alone computes\n";
    case report::Verdict::within:
      return "within rounding: not equal in bits, and no difference is larger than rounding\n";
    case report::Verdict::broken:
      return "broken: in this layout the ranks do not compute what one rank alone computes\n";
  }
  return "";
}

bool was_stopped(const launch::JobResult& result) {
  return result.exit_code == kStoppedOnRequest || result.exit_code >= 128;
}

struct Outcome {
  report::Equivalence found;
  std::string error;  // of the layout's job; empty: it ended well
};

Outcome compare_runs(const VerifyRuns& runs, const plan::TrainConfig& twin, int ranks, bool exact,
                     const launch::JobResult& layout) {
  Outcome outcome;
  outcome.found = report::compare(
      files::read_witness(runs.witness_folder("layout")),
      files::read_witness(runs.witness_folder("alone")),
      {.ranks = ranks, .steps = twin.run.steps, .terms = report::terms_of(twin), .exact = exact});
  if (layout.exit_code == 0) return outcome;
  outcome.error =
      layout.error.empty() ? base::str("it ended with code ", layout.exit_code) : layout.error;
  outcome.found.verdict = report::Verdict::broken;
  outcome.found.missing.clear();  // what it had no time to leave
  return outcome;
}

void say(const VerifyArguments& args, const plan::TrainConfig& twin, const Outcome& outcome) {
  std::FILE* const to = args.json ? stderr : stdout;
  std::string text = report::text_of(outcome.found);
  if (!outcome.error.empty()) {
    text += base::str("the layout's run failed",
                      args.keep.empty() ? " (--keep FOLDER keeps its logs)" : "", ":\n",
                      outcome.error, "\n");
  }
  std::fprintf(to, "%s%s", text.c_str(), verdict_text(outcome.found.verdict).c_str());
  if (!args.json) return;
  nlohmann::json json = report::to_json(outcome.found);
  json["ranks"] = args.ranks;
  json["steps"] = args.steps;
  json["error"] = outcome.error.empty() ? nlohmann::json(nullptr) : nlohmann::json(outcome.error);
  json["twin"] = plan::to_json(twin);
  std::printf("%s\n", json.dump().c_str());
}

}  // namespace

int verify_command(const std::vector<std::string>& args) {
  VerifyArguments parsed;
  if (!parse(args, parsed)) return 0;
  require_fault(parsed.plant);
  ResolvedConfig resolved = resolve_config(parsed.sources);
  const plan::TrainConfig twin = twin_for(parsed, resolved);
  VerifyRuns runs(worker_program(), parsed.keep);
  std::fprintf(parsed.json ? stderr : stdout, "%s",
               header_text(twin, resolved.config, parsed.ranks).c_str());

  const launch::JobResult alone = runs.run("alone", plan::alone_of(twin), 1);
  if (was_stopped(alone)) return alone.exit_code;
  if (alone.exit_code != 0) {
    throw Error(base::str("the run on one rank failed, so there is nothing to compare with.\n",
                          alone.error),
                alone.exit_code);
  }
  const launch::JobResult layout = runs.run("layout", twin, parsed.ranks, parsed.plant);
  if (was_stopped(layout)) return layout.exit_code;
  const Outcome outcome = compare_runs(runs, twin, parsed.ranks, parsed.exact, layout);
  say(parsed, twin, outcome);
  return outcome.found.verdict == report::Verdict::broken ? kVerificationFailed : 0;
}

}  // namespace lockstep::cli
