/// Starts the ranks of a program that has no launcher of its own.
#pragma once

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>

namespace lockstep::bench {

/// Runs `body(rank)` in `ranks` forked processes. 0 if all came to its end.
inline int run_on_processes(int ranks, const std::function<void(int)>& body) {
  for (int rank = 0; rank < ranks; ++rank) {
    if (fork() != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      body(rank);
      _exit(0);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
      _exit(1);
    }
  }
  int failed = 0;
  for (int status = 0; wait(&status) > 0;) failed |= status != 0 ? 1 : 0;
  return failed;
}

}  // namespace lockstep::bench
