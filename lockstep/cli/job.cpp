#include "lockstep/cli/job.h"

#include <cstdio>

#include "lockstep/base/own_program.h"
#include "lockstep/launch/rank_process.h"

namespace lockstep::cli {

std::string worker_program(const std::string& own) {
  if (!own.empty()) return launch::find_program(own);
  return launch::find_program(base::own_folder() + "/lockstep-worker");
}

int run_and_report(const launch::JobOptions& options) {
  // The worker writes to the same descriptors: what this program has said comes first.
  std::fflush(nullptr);
  const launch::JobResult result = launch::run_job(options);
  if (!result.error.empty()) std::fprintf(stderr, "%s\n", result.error.c_str());
  return result.exit_code;
}

}  // namespace lockstep::cli
