/// Runs that are stopped at a random step and gone on with on another layout.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/command/command.h"

namespace lockstep::testing {

/// A model whose steps take some milliseconds, on any layout: 30 steps, a checkpoint every 4.
std::vector<std::string> small_run(const TempFolder& runs);

/// What an unbroken run leaves: its digest, the loss of each step, and of each evaluation.
struct Unbroken {
  std::string digest;
  std::vector<double> losses;
  std::vector<double> evaluations;
};
Unbroken unbroken_run();

/// The only run folder in `runs`; empty if there is none yet.
std::string run_in(const TempFolder& runs);
int64_t steps_in(const std::string& run);
/// Of each step, in order: fails the test where one is missing or comes twice.
std::vector<double> losses_in(const std::string& run);
std::vector<double> evaluations_in(const std::string& run);

/// Starts a run, ends it somewhere (SIGKILL of the command or of a rank, or SIGTERM), and goes on
/// with it in the `trial`-th layout: digest and losses are those of the unbroken run.
void interrupt_and_resume(const Unbroken& whole, int trial, uint64_t seed);

}  // namespace lockstep::testing
