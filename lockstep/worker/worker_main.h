/// The main of a program whose ranks `lockstep train`, `eval` and `generate` start: one rank of a
/// job (engine shm), or all of them as threads (engine threads).
#pragma once

#include "lockstep/train/task.h"

namespace lockstep {

/// Runs the subcommand in `argv` and returns the exit code; throws nothing. The environment it
/// reads is in launch/job.h.
///
/// tasks   families of one's own: `lockstep train CONFIG --set run.worker=PROGRAM` trains them with
///         the Trainer as it does Lockstep's models
int worker_main(int argc, char** argv, const TaskFactories& tasks = {});

}  // namespace lockstep
