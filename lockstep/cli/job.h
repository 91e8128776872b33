/// Running the program of the ranks: lockstep-worker, which lies beside this program, or one of the
/// user's own.
#pragma once

#include <string>
#include <vector>

#include "lockstep/launch/job.h"

namespace lockstep::cli {

/// The path of `own`, or of lockstep-worker if that is empty. Throws UsageError where it is
/// missing.
std::string worker_program(const std::string& own = {});

/// Starts the job, waits for it, prints what went wrong to stderr, and returns its exit code.
int run_and_report(const launch::JobOptions& options);

}  // namespace lockstep::cli
