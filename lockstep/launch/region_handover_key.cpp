// Which job is this? Answered so that two jobs never give the same answer, and all ranks of one do.

#include <unistd.h>

#include <fstream>
#include <iterator>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/launch/region_handover.h"
#include "lockstep/net/watchdog.h"

namespace lockstep::launch {
namespace {

constexpr int kMostAncestors = 64;

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

pid_t parent_of(pid_t pid) {
  const std::string stat = read_all(base::str("/proc/", pid, "/stat"));
  // "pid (name) state ppid ...": the name may hold spaces and brackets.
  const size_t after = stat.rfind(')');
  return after == std::string::npos || after + 4 > stat.size()
             ? 0
             : std::atoi(stat.c_str() + after + 4);
}

/// The nearest ancestor whose environment lacks the variable that this rank was told its rank by:
/// shells and scripts between the launcher and the rank pass it on, the launcher itself never had
/// it. 0: it cannot be seen (another pid namespace).
pid_t launching_process(const std::string& rank_variable) {
  pid_t pid = getppid();
  for (int i = 0; i < kMostAncestors && pid > 0; ++i) {
    const std::string environment = '\0' + read_all(base::str("/proc/", pid, "/environ"));
    if (environment.find('\0' + rank_variable + "=") == std::string::npos) return pid;
    pid = parent_of(pid);
  }
  return 0;
}

/// Whether all ranks of a host descend from one process.
bool has_launching_process(const Place& place) {
  switch (place.launcher) {
    case Launcher::open_mpi:
    case Launcher::mpich:
    case Launcher::slurm:
      return true;
    case Launcher::torchrun:
      return !place.job_id.empty();  // else RANK was set by hand, maybe in two terminals
    case Launcher::lockstep:
    case Launcher::none:
      break;
  }
  return false;
}

}  // namespace

void require_one_host(const Place& place, const std::string& engine) {
  if (place.local_size == place.world_size) return;
  throw EnvironmentError(base::str(
      "[rank ", place.rank, " of ", place.world_size, "] the ranks are on several hosts (",
      place.local_size, " here, started by ", name_of(place.launcher), "), and engine ", engine,
      " spans one host.\n  Start all ranks on one host, or start them with mpirun and use engine "
      "mpi. A program's own communication finds RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as "
      "ever."));
}

std::string job_key(const Place& place) {
  std::string key =
      base::str("user ", geteuid(), ", ", name_of(place.launcher), " job \"", place.job_id,
                "\" restart ", place.restart_count, " at ", place.host, ":", place.port);
  if (has_launching_process(place)) {
    const pid_t launcher = launching_process(place.rank_variable);
    key += base::str(" under process ", launcher, " of ", net::start_time_of(launcher));
  }
  return key;
}

std::string key_of_all_starts(const Place& place) {
  if (place.launcher == Launcher::slurm) {  // on whatever hosts
    return base::str("user ", geteuid(), ", Slurm job ", place.job_id);
  }
  if (place.launcher != Launcher::torchrun && place.launcher != Launcher::lockstep) return "";
  const pid_t launcher = launching_process(place.rank_variable);
  if (launcher <= 0) return "";
  return base::str("user ", geteuid(), ", ", name_of(place.launcher), " process ", launcher, " of ",
                   net::start_time_of(launcher));
}

HandoverOptions handover_options(const Place& place, std::chrono::milliseconds timeout) {
  return {.key = job_key(place),
          .rank = place.rank,
          .world_size = place.world_size,
          .local_rank = place.local_rank,
          .local_size = place.local_size,
          .started_by = name_of(place.launcher),
          .timeout = timeout};
}

}  // namespace lockstep::launch
