/// `lockstep verify`: whether a layout computes what one rank alone computes, on a twin of the run
/// (plan/twin_config.h) that trains a few steps both ways (report/equivalence.h).
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// The layout does not compute what one rank computes.
inline constexpr int kVerificationFailed = 8;

/// Runs `lockstep verify ARGS...` and returns the exit code: 0, kVerificationFailed, or what
/// stopped it. Settings that do not fit, and a lone run that fails, come out as lockstep::Error.
int verify_command(const std::vector<std::string>& args);

}  // namespace lockstep::cli
