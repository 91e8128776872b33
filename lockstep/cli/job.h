/// Running lockstep-worker, which lies beside this program.
#pragma once

#include <string>
#include <vector>

#include "lockstep/launch/job.h"

namespace lockstep::cli {

/// The path of lockstep-worker. Throws UsageError where it is missing.
std::string worker_program();

/// Starts the job, waits for it, prints what went wrong to stderr, and returns its exit code.
int run_and_report(const launch::JobOptions& options);

}  // namespace lockstep::cli
