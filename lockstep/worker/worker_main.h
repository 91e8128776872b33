/// The main of a program whose ranks `lockstep train`, `eval` and `generate` start: one rank of a
/// job (engine shm), or all of them as threads (engine threads).
#pragma once

namespace lockstep {

/// Runs the subcommand in `argv` and returns the exit code; throws nothing. The environment it
/// reads is in launch/job.h.
int worker_main(int argc, char** argv);

}  // namespace lockstep
