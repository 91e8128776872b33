/// The environment that a rank starts with: the launcher's own, and on top what makes it a rank, in
/// Lockstep's names and in torchrun's, so that programs written for torchrun find their place.
///
///   LOCKSTEP_ENGINE shm | threads     LOCKSTEP_WORLD_SIZE N          LOCKSTEP_TIMEOUT_S
///   LOCKSTEP_OVERSUBSCRIBED 0 | 1     LOCKSTEP_LOGGED 0 | 1          LOCKSTEP_CONSOLE_FD
///   LOCKSTEP_REGION_FD                the region that all ranks share; absent: there is none
///   LOCKSTEP_RANK and RANK            LOCKSTEP_LOCAL_RANK and LOCAL_RANK
///   WORLD_SIZE                        LOCKSTEP_LOCAL_SIZE and LOCAL_WORLD_SIZE
///   LOCKSTEP_NODE_RANK and GROUP_RANK ROLE_RANK, ROLE_WORLD_SIZE     (those of RANK, WORLD_SIZE)
///   LOCKSTEP_RESTART_COUNT and TORCHELASTIC_RESTART_COUNT            TORCHELASTIC_MAX_RESTARTS
///   LOCKSTEP_JOB_ID and TORCHELASTIC_RUN_ID                          MASTER_ADDR, MASTER_PORT
/// and unless the caller's environment says otherwise OMP_NUM_THREADS=1, OPENBLAS_NUM_THREADS=1,
/// ATEN_CPU_CAPABILITY, and OPENBLAS_CORETYPE where launch/blas_core.h has a better one.
#pragma once

#include <string>
#include <vector>

namespace lockstep::launch {

struct RankPlace {
  std::string engine = "shm";
  int rank = -1;  // -1: one process for all ranks
  int ranks = 1;
  int local_rank = -1;  // -1: as `rank`, all ranks are on this host
  int local_ranks = 0;  // 0: as `ranks`
  int node_rank = 0;
  int restart_count = 0;
  int max_restarts = 0;
  std::string job_id = "none";  // torchrun's word where there is none
  std::string master_host = "127.0.0.1";
  int master_port = 0;  // 0: neither MASTER_ADDR nor MASTER_PORT is set
  int region_fd = -1;
  int console_fd = -1;
  bool logged = false;  // stderr is a log of the rank's own
  double timeout_s = 120;
  bool oversubscribed = false;
};

/// "NAME=value" of every variable. What an outer job set for its own ranks is left out.
std::vector<std::string> rank_environment(const RankPlace& place);

/// The widest instruction set of this machine that LibTorch's kernels come in: "avx512", "avx2" or
/// "default". The package would take AVX2; this is asked for by ATEN_CPU_CAPABILITY.
const char* best_cpu_capability();

}  // namespace lockstep::launch
