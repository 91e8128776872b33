#include "lockstep/launch/mpi_start.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/launch/cores.h"
#include "lockstep/launch/rank_process.h"
#include "lockstep/launch/signal_inbox.h"

namespace lockstep::launch {
namespace {

/// A program of PATH; empty if there is none.
std::string in_path(const std::string& name) {
  try {
    return find_program(name);
  } catch (const UsageError&) {
    return "";
  }
}

struct Mpirun {
  std::vector<std::string> words;
  int stop_signal;  // passed on to the ranks, which are left to finish
};

Mpirun mpirun_here(int ranks) {
  const std::string count = std::to_string(ranks);
  const std::string open_mpi = in_path("mpirun.openmpi");
  const std::string mpich = in_path("mpirun.mpich");
  if (!open_mpi.empty() && !net::mpi_plugin(net::Mpi::open_mpi).empty()) {
    // A second after SIGTERM it kills what has not ended.
    Mpirun mpirun{{open_mpi, "--mca", "ess_base_forward_signals", "SIGURG", "-n", count}, SIGURG};
    // Ranks are bound to cores by it only where each has one.
    if (ranks > cores_at_full_speed()) mpirun.words.emplace_back("--oversubscribe");
    if (geteuid() == 0) mpirun.words.emplace_back("--allow-run-as-root");
    return mpirun;
  }
  if (!mpich.empty() && !net::mpi_plugin(net::Mpi::mpich).empty()) {
    return {{mpich, "-n", count}, SIGTERM};
  }
  throw EnvironmentError(base::str(
      "engine mpi: no MPI has both its launcher (mpirun.openmpi or mpirun.mpich) and its plug-in "
      "here.\n  Install openmpi-bin and libopenmpi-dev, or mpich and libmpich-dev, and build "
      "again."));
}

int code_of(int status, int ended_by) {
  if (ended_by != 0) return 128 + ended_by;
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  std::fprintf(stderr, "mpirun died: killed by signal %d. Its ranks end with it.\n",
               WTERMSIG(status));
  return RankDied("").exit_code();
}

}  // namespace

std::optional<net::Mpi> mpi_here(const Lookup& lookup) {
  if (lookup("OMPI_COMM_WORLD_SIZE") || lookup("PMIX_RANK")) return net::Mpi::open_mpi;
  if (lookup("PMI_SIZE") || lookup("PMI_RANK")) return net::Mpi::mpich;
  return std::nullopt;
}

net::Mpi require_mpi_here(const Lookup& lookup) {
  if (const auto mpi = mpi_here(lookup)) return *mpi;
  throw EnvironmentError(
      "engine mpi: no MPI started this process.\n  Start it with mpirun, or with `lockstep train "
      "-n "
      "N`, which does.");
}

int run_by_mpi(int ranks, const std::vector<std::string>& command, FirstStop first_stop) {
  Mpirun mpirun = mpirun_here(ranks);
  mpirun.words.insert(mpirun.words.end(), command.begin(), command.end());
  SignalInbox inbox;
  const pid_t process = spawn({.program = mpirun.words[0],
                               .arguments = mpirun.words,
                               .environment = own_environment(),
                               .inherited = {},
                               .signal_mask = inbox.outer_mask()});
  bool may_save = first_stop == FirstStop::lets_them_save;
  int ended_by = 0;  // the request that ended the ranks
  for (;;) {
    const auto signal = inbox.next(std::chrono::seconds(1));
    int status = 0;
    if (waitpid(process, &status, WNOHANG) == process) return code_of(status, ended_by);
    if (!signal || *signal == SIGCHLD) continue;
    if (*signal == SIGUSR1 || *signal == SIGUSR2) {
      kill(process, *signal);
    } else if (may_save && *signal != SIGQUIT) {
      kill(process, mpirun.stop_signal);
      may_save = false;
    } else if (ended_by == 0) {  // told twice, Open MPI's may crash
      kill(process, SIGTERM);
      ended_by = *signal;
    }
  }
}

}  // namespace lockstep::launch
