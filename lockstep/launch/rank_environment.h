/// The environment that a rank starts with: the launcher's own, and on top what makes it a rank.
#pragma once

#include <string>
#include <vector>

namespace lockstep::launch {

struct RankPlace {
  std::string engine = "shm";
  int rank = -1;  // -1: one process for all ranks
  int ranks = 1;
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
