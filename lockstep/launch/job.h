/// Starts the ranks of a job on this host, watches them, and ends all of them when one fails.
///
/// shm       one process a rank (fork + exec) over a Region this process created; the descriptor is
///           inherited. Rank r is bound to the r-th allowed core when ranks do not exceed cores; a
///           lone rank is not bound. The program need not know Lockstep.
/// threads   one process that runs all ranks as threads.
///
/// Children get SIGKILL when this process dies. What a rank finds in its environment:
/// launch/rank_environment.h. How a job lives and ends: docs/concepts/launch.md
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/net/world.h"

namespace lockstep::launch {

/// Which part of a larger job this host runs. The default: all of it.
struct Share {
  int first_rank = 0;
  int world_size = 0;  // 0: the ranks of this job are all there are
  /// Where other launchers of this host start further ranks: the place of ours among all of them.
  int first_local_rank = 0;
  int local_size = 0;           // 0: the ranks of this job are all on this host
  bool oversubscribed = false;  // they are more than the cores, though ours are not
  int node_rank = 0;
  /// Where rank 0 can be met, for programs that meet over TCP. Port 0: a free one of this host is
  /// looked for at each start; -1: neither variable is set.
  std::string master_host = "127.0.0.1";
  int master_port = -1;
  std::string job_id = {};  // empty: one of this job's own
  /// Of all ranks of the job, where they are all on this host. Null: one is made for a job that is
  /// all here; ranks of a job that is not share none.
  std::shared_ptr<net::Region> region = {};
};

struct JobResult {
  int exit_code = 0;
  std::string error;  // one block: what happened first, on which rank, at which step; empty if fine
  /// False: what failed here was told of a failure elsewhere, or may have been.
  bool first_hand = true;
};

/// What reaches this host from the other nodes of a job.
struct NodeEvent {
  std::string failure;  // what ended the job elsewhere; empty: nothing has
  int signal = 0;       // a request to stop that another node was sent; 0: none
};

struct Verdict {
  bool again = false;  // all ranks of all nodes start again
  JobResult result;    // of all nodes together
};

/// The other nodes of a job that spans several (launch/rendezvous.h). All calls come from the
/// thread of run_job.
class Nodes {
 public:
  virtual ~Nodes() = default;
  /// What this host runs in the start that comes. Throws CommError, EnvironmentError.
  virtual Share share() = 0;
  /// Asked several times a second while ranks run.
  virtual NodeEvent poll() = 0;
  /// Said at once: a rank of this host has failed; its user wants the job to stop.
  virtual void failed_here(const std::string& why) = 0;
  virtual void stop_here(int signal) = 0;
  /// The ranks of this host are gone. `over`: whatever came of the others, nothing starts again.
  virtual void finished(const JobResult& result, bool over) = 0;
  /// Nothing until all nodes have finished.
  virtual std::optional<Verdict> verdict() = 0;
};

enum class Output {
  /// Ranks write themselves: stderr to their logs or to this process's stderr, stdout of rank 0 to
  /// this process's, that of the others where their stderr goes.
  direct,
  /// What is shown comes by way of this process: whole lines, "[rank 2] " before each if there are
  /// several ranks. With a log folder rank 0 is shown, the others write to their logs alone.
  lines,
};

struct JobOptions {
  std::vector<std::string> command;  // program and arguments of every rank
  int ranks = 1;                     // on this host
  std::string engine = "shm";
  /// Of the ranks' collectives; also how long a rank may be stopped (SIGSTOP) before the job ends.
  double timeout_s = 120;
  /// Ranks' logs: rank_0000.log... here, in restart_1... for those of a second start. Empty: none.
  std::string log_folder = {};
  /// Said on stderr when the first request to stop is passed on; empty: nothing.
  std::string stop_notice = {};
  Output output = Output::direct;
  bool tee = false;  // lines and a log folder: all ranks are shown
  /// How often all ranks are started again after a failure.
  int max_restarts = 0;
  /// Each rank has a core of its own, where there are enough.
  bool bind = true;
  /// Ranks may start processes; these end too if this process is killed (launch/guardian.h).
  bool guard = false;
  Share share = {};
  /// Null: the job is all on this host. Else `share` is what it says, and it decides on restarts.
  Nodes* nodes = nullptr;
};

/// Blocks until every rank is gone; what goes wrong is in the result, nothing is thrown. After the
/// first failure the others are told (the region's abort; a stopped process is woken for it); ranks
/// that never joined the region get SIGTERM at once, the rest after 1 s, and SIGKILL after 3 s
/// more. A log folder gets last_operations.txt then.
///
/// SIGINT, SIGTERM and SIGHUP of this process: the first is passed on (ranks finish their step,
/// save, and exit 75), the second kills, as SIGQUIT does at once. SIGUSR1 (save and go on) and
/// SIGUSR2 (dump stacks and pending calls) are passed on to ranks that catch them.
///
/// A rank that fails says so with Endpoint::fail and exits with a non-zero code; 75 is no failure.
/// Exit code: the first cause's (4 for a rank that died); 5 for a rank that was stopped for longer
/// than the timeout; 75 if ranks stopped on request; 128 + the signal if they were stopped before
/// they could save; 2 if the program is missing or 0 ranks are asked for; 3 if what ranks wrote
/// could not be written.
///
/// After a failure with restarts left, the report is printed to stderr and all ranks are started
/// again, over a new region. Code 2 and a request to stop end the job all the same.
JobResult run_job(const JobOptions& options);

}  // namespace lockstep::launch
