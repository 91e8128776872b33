/// The MPI engine. It is a plug-in for each MPI, found at run time: a machine without MPI still
/// runs, and two MPIs can be installed side by side.
///
/// A plug-in lies in LOCKSTEP_PLUGIN_PATH, beside the program, or in ../lib/lockstep from there. It
/// must belong to the MPI whose mpirun started the ranks.
#pragma once

#include <memory>
#include <string>

#include "lockstep/net/transport.h"

namespace lockstep::net {

enum class Mpi { open_mpi, mpich };

/// The plug-in's file; empty if there is none.
std::string mpi_plugin(Mpi mpi);

/// Starts MPI in this process. Throws EnvironmentError: no plug-in, or an MPI that cannot be used
/// by several threads at once.
std::shared_ptr<MessageEngine> load_mpi_engine(Mpi mpi);

}  // namespace lockstep::net
