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

/// What starts `ranks` processes of `command`: the mpirun of the first MPI that has a plug-in, too.
/// Throws EnvironmentError naming what is missing.
std::vector<std::string> mpirun_command(int ranks, const std::vector<std::string>& command);

/// Becomes that program. Does not return.
[[noreturn]] void become(const std::vector<std::string>& command);

}  // namespace lockstep::launch
