/// What the system knows of a process, read from /proc.
#pragma once

#include <sys/types.h>

namespace lockstep::launch {

/// Somebody has stopped it (SIGSTOP and its like). A process that a debugger holds is not stopped.
bool is_stopped(pid_t pid);

/// It has a handler for `signal`: the default, which mostly ends a process, is not taken.
bool catches(pid_t pid, int signal);

}  // namespace lockstep::launch
