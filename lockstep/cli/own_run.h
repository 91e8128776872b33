/// The run of a job that its launcher has started again: torchrun or `lockstep run` with
/// --max-restarts, or Slurm, which requeues.
///
/// A run folder keeps whose it is in RUN/job. With run.resume = auto a later start of the same job
/// goes on in it, and never in another job's.
#pragma once

#include <string>

#include "lockstep/plan/train_config.h"

namespace lockstep::cli {

/// What RUN/job says of the runs of this process's job; empty: its launcher starts nothing again.
std::string own_job();

/// Keeps it. Throws StateError.
void remember_job(const std::string& folder, const std::string& job);

/// The newest run of `job` in config.run.dir; empty: there is none, or this is the job's first
/// start.
std::string run_of_job(const plan::TrainConfig& config, const std::string& job);

}  // namespace lockstep::cli
