#include "lockstep/launch/mpi_start.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/launch/cores.h"
#include "lockstep/launch/rank_process.h"

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

std::vector<std::string> mpirun_command(int ranks, const std::vector<std::string>& command) {
  std::vector<std::string> words;
  const std::string open_mpi = in_path("mpirun.openmpi");
  const std::string mpich = in_path("mpirun.mpich");
  if (!open_mpi.empty() && !net::mpi_plugin(net::Mpi::open_mpi).empty()) {
    // Ranks are bound to cores by it only where each has one.
    words = {open_mpi, "-n", std::to_string(ranks)};
    if (ranks > cores_at_full_speed()) words.insert(words.end(), {"--oversubscribe"});
    if (geteuid() == 0) words.emplace_back("--allow-run-as-root");
  } else if (!mpich.empty() && !net::mpi_plugin(net::Mpi::mpich).empty()) {
    words = {mpich, "-n", std::to_string(ranks)};
  } else {
    throw EnvironmentError(base::str(
        "engine mpi: no MPI has both its launcher (mpirun.openmpi or mpirun.mpich) and its plug-in "
        "here.\n  Install openmpi-bin and libopenmpi-dev, or mpich and libmpich-dev, and build "
        "again."));
  }
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

void become(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  std::fflush(nullptr);
  execv(argv[0], argv.data());
  throw EnvironmentError(base::str("cannot start ", command[0], ": ", std::strerror(errno)));
}

}  // namespace lockstep::launch
