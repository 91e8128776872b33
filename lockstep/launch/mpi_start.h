/// How ranks of engine mpi come to their MPI: they are started by its mpirun.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/place.h"
#include "lockstep/net/engines/mpi.h"

namespace lockstep::launch {

/// The MPI whose launcher started this process: its mpirun, or an srun that speaks its protocol.
std::optional<net::Mpi> mpi_here(const Lookup& lookup);

/// The same; throws EnvironmentError, saying how to start, if there is none.
net::Mpi require_mpi_here(const Lookup& lookup);

/// Starts `ranks` processes of `command` by the mpirun of the first MPI that has a plug-in, too,
/// and waits for them. Signals are passed on, a first request to stop in a way that lets the ranks
/// finish. Returns mpirun's exit code, 128 + signal if one ended it. Throws EnvironmentError naming
/// what is missing.
int run_by_mpi(int ranks, const std::vector<std::string>& command);

}  // namespace lockstep::launch
