/// Starts the ranks of a job on this host, watches them, and ends all of them when one fails.
///
/// shm       one process a rank (fork + exec) over a Region this process created; the descriptor is
///           inherited. Rank r is bound to the r-th allowed core when ranks do not exceed cores; a
///           lone rank is not bound.
/// threads   one process that runs all ranks as threads.
///
/// Children get SIGKILL when this process dies. The environment of a rank:
///   LOCKSTEP_ENGINE shm | threads     LOCKSTEP_RANK 0..N-1 (shm)     LOCKSTEP_WORLD_SIZE N
///   LOCKSTEP_REGION_FD                LOCKSTEP_TIMEOUT_S             LOCKSTEP_OVERSUBSCRIBED 0 | 1
///   LOCKSTEP_CONSOLE_FD               where progress goes (rank 0, when there is a log folder)
///   LOCKSTEP_LOGGED 0 | 1             stderr is a log of the rank's own
///   OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 ATEN_CPU_CAPABILITY=(the best of this machine),
///   these three unless the caller's environment says otherwise.
#pragma once

#include <string>
#include <vector>

namespace lockstep::launch {

struct JobOptions {
  std::vector<std::string> command;  // program and arguments of every rank
  int ranks = 1;
  std::string engine = "shm";
  double timeout_s = 120;  // of the ranks' collectives
  /// Ranks' stderr goes to rank_0000.log... here; empty: it is inherited. stdout of rank 0 is
  /// always inherited, that of the others goes where their stderr goes.
  std::string log_folder = {};
  /// Said on stderr when the first request to stop is passed on; empty: nothing.
  std::string stop_notice = {};
};

struct JobResult {
  int exit_code = 0;
  std::string error;  // one block: what happened first, on which rank, at which step; empty if fine
};

/// Blocks until every rank is gone; what goes wrong is in the result, nothing is thrown. After the
/// first failure the others are told (the region's abort; a stopped process is woken for it), get
/// SIGTERM after 1 s and SIGKILL after 3 s more. A log folder gets last_operations.txt then. SIGINT
/// and SIGTERM of this process: the first is passed on (ranks finish their step, save, and exit
/// 75), the second kills.
///
/// A rank that fails says so with Endpoint::fail and exits with a non-zero code; 75 is no failure.
/// Exit code: the first cause's (4 for a rank that died); 75 if ranks stopped on request; 128 + the
/// signal if they were stopped before they could save; 2 if the program is missing or 0 ranks are
/// asked for.
JobResult run_job(const JobOptions& options);

/// The folder of the running executable.
std::string executable_folder();

}  // namespace lockstep::launch
