/// Where a rank stands, told by the environment of whichever launcher started it.
///
/// Looked for in this order; the first whose variables are set counts:
///   Lockstep    LOCKSTEP_WORLD_SIZE                     (launch/rank_environment.h)
///   torchrun    RANK                                    WORLD_SIZE must be there too
///   Open MPI    OMPI_COMM_WORLD_RANK
///   MPICH       PMI_RANK and MPI_LOCALNRANKS            (hydra)
///   Slurm       SLURM_PROCID and SLURM_STEP_ID, in a step of more than one task
///   none        a world of one
///
/// Source  variables: torch/distributed/run.py, srun(1), mpirun of Open MPI 4.1 and MPICH 4.0;
///         docs/concepts/joining.md
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::launch {

enum class Launcher { none, lockstep, torchrun, open_mpi, mpich, slurm };

/// "torchrun", "Open MPI", ...
const char* name_of(Launcher launcher);

struct Place {
  Launcher launcher = Launcher::none;
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_size = 1;  // ranks on this host
  int node_rank = 0;   // -1: the launcher does not say
  std::string host;    // where rank 0 can be met; empty: the launcher does not say
  int port = 0;        // 0: the launcher does not say
  std::string job_id;  // tells jobs of one launcher apart; empty: the launcher does not say
  int restart_count = 0;
  /// The variable that holds this process's rank: its launcher's own environment lacks it.
  std::string rank_variable;
};

/// The value of a variable, if it is set.
using Lookup = std::function<std::optional<std::string>(const std::string& name)>;

/// The Lookup of this process's environment.
std::optional<std::string> own_variable(const std::string& name);

/// Throws EnvironmentError, naming variable and value, for what is no number, is missing, or does
/// not fit the rest (a rank that is not below the world size).
Place place_from(const Lookup& lookup);

/// Slurm's list of counts, "2(x3),1" -> 2 2 2 1. Throws EnvironmentError.
std::vector<int> slurm_counts(const std::string& variable, const std::string& text);

/// Slurm's list of hosts, "node[7-8,12],login" -> node7 node8 node12 login; leading zeros are kept,
/// a name may have several brackets, the last runs fastest. Throws EnvironmentError.
std::vector<std::string> slurm_hosts(const std::string& variable, const std::string& text);

}  // namespace lockstep::launch
