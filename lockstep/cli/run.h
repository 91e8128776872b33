/// `lockstep run -n N -- PROGRAM ARGS`: the ranks of a job that are any program, one that uses
/// Lockstep or one written for torchrun.
#pragma once

#include <string>
#include <vector>

#include "lockstep/launch/job.h"
#include "lockstep/launch/rendezvous.h"

namespace lockstep::cli {

struct RunArguments {
  launch::JobOptions job;
  launch::NodeOptions nodes;  // where there are several
};

/// What `lockstep run ARGS...` starts. False: help was asked for, and has been printed. Throws
/// UsageError.
bool parse_run(const std::vector<std::string>& args, RunArguments& parsed);

/// Runs it and returns the exit code.
int run_command_of_ranks(const std::vector<std::string>& args);

}  // namespace lockstep::cli
