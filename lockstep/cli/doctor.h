/// `lockstep doctor`: what this machine has, and what to do about what it lacks.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Runs `lockstep doctor ARGS...`: 0 if a run can start here, 3 if something that it needs is
/// missing. Errors come out as lockstep::Error.
int doctor_command(const std::vector<std::string>& args);

}  // namespace lockstep::cli
