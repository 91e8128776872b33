#include "lockstep/cli/run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/cli/arguments.h"
#include "lockstep/cli/job.h"
#include "lockstep/cli/job_token.h"

namespace lockstep::cli {
namespace {

constexpr const char* kExample = "  lockstep run -n 2 -- ./my_program --its-own flags";

[[noreturn]] void refuse_without_program(const std::vector<std::string>& strays) {
  if (strays.empty()) throw UsageError(base::str("lockstep run: what should it run?\n", kExample));
  throw UsageError(base::str("lockstep run: \"", strays.front(),
                             "\" stands before a `--`, and the ", "program comes after it.\n",
                             kExample));
}

bool is_numbered(const std::string& name, const std::string& before, const std::string& after) {
  if (!name.starts_with(before) || !name.ends_with(after)) return false;
  if (name.size() <= before.size() + after.size()) return false;
  const auto digits =
      std::string_view(name).substr(before.size(), name.size() - before.size() - after.size());
  return digits.find_first_not_of("0123456789") == std::string::npos;
}

/// What an earlier job of more ranks or restarts left would be taken for this one's.
void remove_earlier_logs(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (is_numbered(name, "restart_", "") && entry.is_directory(error)) {
      remove_earlier_logs(entry.path());
      std::filesystem::remove(entry.path(), error);  // unless the user has put something there
    } else if (is_numbered(name, "rank_", ".log") || name == "last_operations.txt") {
      std::filesystem::remove(entry.path(), error);
    }
  }
}

void make_log_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) return;
  throw EnvironmentError(base::str("cannot make ", folder, ": ", error.message(), "."));
}

/// Where a job on several nodes meets.
struct Meeting {
  std::string rendezvous;  // HOST:PORT of node 0
  std::string token_file;
};

/// The flags of a job on several nodes.
void add_nodes(CLI::App& app, launch::NodeOptions& nodes, Meeting& meeting) {
  app.add_option("--nnodes", nodes.nodes, "nodes of the job, each with a launcher (default 1)")
      ->check(CLI::Range(1, 100'000));
  app.add_option("--node-rank", nodes.node_rank, "which of them this is, from 0")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--rendezvous", meeting.rendezvous,
                 "HOST:PORT where node 0 listens for the others, on that address alone");
  app.add_option("--rendezvous-token-file", meeting.token_file,
                 "holds the job's token, the same on all nodes; else LOCKSTEP_JOB_TOKEN does");
}

void check_nodes(const Meeting& meeting, RunArguments& parsed) {
  launch::NodeOptions& nodes = parsed.nodes;
  if (nodes.nodes == 1 && nodes.node_rank == 0) return;
  if (nodes.node_rank >= nodes.nodes) {
    throw UsageError(base::str("lockstep run: --node-rank ", nodes.node_rank,
                               " is not below --nnodes ", nodes.nodes, "."));
  }
  if (meeting.rendezvous.empty()) {
    throw UsageError(
        base::str("lockstep run: --nnodes ", nodes.nodes,
                  " needs --rendezvous HOST:PORT, the same on all nodes: where node 0 listens."));
  }
  parse_rendezvous(meeting.rendezvous, nodes);
  nodes.token = job_token(meeting.token_file);
  nodes.ranks = parsed.job.ranks;
  nodes.max_restarts = parsed.job.max_restarts;
  nodes.timeout = std::chrono::milliseconds(std::llround(parsed.job.timeout_s * 1000));
}

}  // namespace

bool parse_run(const std::vector<std::string>& args, RunArguments& parsed) {
  launch::JobOptions& job = parsed.job;
  const auto divider = std::find(args.begin(), args.end(), "--");
  CLI::App app(
      "Starts any program as the ranks of a job: lockstep run -n N [flags] -- PROGRAM ARGS...\n"
      "A rank finds its place in RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and the\n"
      "other variables of torchrun, and in those of Lockstep.",
      "lockstep run");
  add_ranks(app, job.ranks, "ranks (default 1)");
  app.add_option("--log-dir", job.log_folder,
                 "what ranks write goes to rank_0000.log... here; rank 0 is shown too");
  app.add_flag("--tee", job.tee, "with --log-dir: all ranks are shown");
  app.add_option("--max-restarts", job.max_restarts,
                 "how often all ranks are started again after a failure (default 0)")
      ->check(CLI::NonNegativeNumber);
  app.add_option(
         "--timeout-s", job.timeout_s,
         "how long ranks wait for each other (default 120), and how long one may be stopped")
      ->check(CLI::PositiveNumber);
  app.add_option("--engine", job.engine, "shm: ranks are processes of this host (default)")
      ->check(CLI::IsMember({"shm"}));
  app.add_flag("!--no-bind", job.bind, "ranks share all cores, instead of one each");
  Meeting meeting;
  add_nodes(app, parsed.nodes, meeting);
  std::vector<std::string> strays;
  app.add_option("PROGRAM", strays, "what to start, and its own arguments, after `--`");
  if (!parse_arguments(app, {args.begin(), divider})) return false;
  if (divider == args.end() || divider + 1 == args.end() || !strays.empty()) {
    refuse_without_program(strays);
  }
  if (job.tee && job.log_folder.empty()) {
    throw UsageError("lockstep run: --tee is about logs: give a --log-dir, or leave it out.");
  }
  check_nodes(meeting, parsed);
  job.command.assign(divider + 1, args.end());
  job.output = launch::Output::lines;
  job.guard = true;
  job.share.master_port = 0;
  return true;
}

int run_command_of_ranks(const std::vector<std::string>& args) {
  RunArguments parsed;
  if (!parse_run(args, parsed)) return 0;
  launch::JobOptions& job = parsed.job;
  if (job.ranks < 1) throw UsageError(base::str("-n ", job.ranks, ": a job has at least 1 rank"));
  if (!job.log_folder.empty()) {
    make_log_folder(job.log_folder);
    if (parsed.nodes.nodes == 1) remove_earlier_logs(job.log_folder);  // nodes may share the folder
  }
  if (parsed.nodes.nodes == 1) return run_and_report(job);
  launch::Rendezvous rendezvous(parsed.nodes);
  job.nodes = &rendezvous;
  return run_and_report(job);
}

}  // namespace lockstep::cli
