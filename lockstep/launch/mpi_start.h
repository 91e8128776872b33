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

/// What a first request to stop does to ranks that mpirun started.
enum class FirstStop { lets_them_save, ends_them };

/// Starts `ranks` processes of `command` by the mpirun of the first MPI that has a plug-in, too,
/// and waits for them. Signals are passed on; a second request to stop ends the ranks in any case.
/// Returns mpirun's exit code; 128 + the signal of a request that ended them; 4, with a line on
/// stderr, if somebody killed mpirun. Throws EnvironmentError naming what is missing.
int run_by_mpi(int ranks, const std::vector<std::string>& command, FirstStop first_stop);

}  // namespace lockstep::launch
