/// The secret by which the launchers of a job on several nodes know each other.
#pragma once

#include <string>

namespace lockstep::cli {

/// The token in `file`, without the space around it; where no file is named, the one in
/// LOCKSTEP_JOB_TOKEN, which is empty where that is not set. Throws UsageError for a file that
/// others than its owner's group can read or that holds no token, EnvironmentError for one that
/// cannot be read.
std::string job_token(const std::string& file);

}  // namespace lockstep::cli
